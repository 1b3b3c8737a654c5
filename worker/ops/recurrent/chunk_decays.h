// SPDX-License-Identifier: Apache-2.0
// How much of what earlier tokens of a chunk wrote is left at later ones.
#pragma once
#include <ATen/core/Tensor.h>

namespace pm::ops {

constexpr int64_t state_chunk = 64;       ///< tokens that are computed at once
constexpr int64_t few_state_tokens = 16;  ///< that are faster one after another than by a chunk with padding

/// The decays of one chunk, of heads that forget at rates of their own.
struct ChunkDecays {
  /// `logarithms` [heads, tokens] of what the state is multiplied by before each token, at most 0.
  explicit ChunkDecays(const at::Tensor& logarithms);
  at::Tensor shrunk;   ///< [heads, tokens, 1]: of the state before the chunk, at each token
  at::Tensor between;  ///< [heads, tokens, tokens]: of what column j wrote, at row i; 0 where j is later
  at::Tensor left;     ///< [heads, tokens, 1]: of what each token wrote, behind the chunk
  at::Tensor whole;    ///< [heads, 1, 1]: of the state before the chunk, behind it
};

}  // namespace pm::ops
