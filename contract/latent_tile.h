// SPDX-License-Identifier: Apache-2.0
// The heads whose keys and values are expanded from latents at once: the planner counts their memory, the worker
// allocates it.
#pragma once
#include <algorithm>
#include <cstdint>

namespace pm {

/// Numbers of one expanded tensor of keys or values: 64 MiB in F32.
constexpr int64_t latent_tile_elements = int64_t{1} << 24;

/// Returns how many of `heads` attend at once to `keys` tokens, whose keys and values are expanded to vectors of
/// `head_dim`. Heads do not read each other, so that a long context takes more rounds and no more memory.
constexpr int64_t heads_of_latent_tile(int64_t heads, int64_t head_dim, int64_t keys) {
  return std::clamp<int64_t>(latent_tile_elements / std::max<int64_t>(1, head_dim * keys), 1,
                             std::max<int64_t>(1, heads));
}

}  // namespace pm
