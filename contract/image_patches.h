// SPDX-License-Identifier: Apache-2.0
// The image of any size that plans count and that ranks read before they serve.
#pragma once
#include <cstdint>

namespace pm {

/// Its patches: with patches of 16 pixels, 1,024 x 1,024 pixels. A request may have a larger one, which takes memory
/// that no plan has counted.
inline constexpr int64_t counted_image_patches = 4096;

/// An upper bound of the queries of a patch whose scores kernels hold at once: they make no matrix of scores.
inline constexpr int64_t patch_query_block = 64;

}  // namespace pm
