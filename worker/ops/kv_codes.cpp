// SPDX-License-Identifier: Apache-2.0
#include "worker/ops/kv_codes.h"

#include <ATen/ATen.h>

#include <limits>

namespace pm::ops {

namespace {

/// The parts of a cache of codes; both are views.
struct Parts {
  at::Tensor codes;   ///< int8 [blocks, kv_heads, 16, d]
  at::Tensor scales;  ///< fp32 [blocks, kv_heads, 16]
};

Parts parts_of(const at::Tensor& cache) {
  const int64_t d = head_dim(cache);
  const at::Tensor blocks = cache.flatten(2);
  return {blocks.narrow(2, 0, block_tokens * d).unflatten(2, {block_tokens, d}),
          blocks.narrow(2, block_tokens * d, block_tokens * kv_scale_bytes).view(at::kFloat)};
}

}  // namespace

void write_codes(const at::Tensor& vectors, const at::Tensor& slots, at::Tensor& cache) {
  const Parts parts = parts_of(cache);
  const at::Tensor x = vectors.to(at::kFloat), block = slots.floor_divide(block_tokens),
                   row = slots.remainder(block_tokens);
  const at::Tensor largest = x.abs().amax(2, /*keepdim=*/true);
  const at::Tensor scale =
      at::where(largest.isfinite(), largest / 127, at::full_like(largest, std::numeric_limits<float>::quiet_NaN()));
  const at::Tensor codes = at::where(scale > 0, at::round(x / scale), at::zeros_like(x)).clamp(-127, 127);
  parts.codes.permute({0, 2, 1, 3}).index_put_({block, row}, codes.to(at::kChar));
  parts.scales.permute({0, 2, 1}).index_put_({block, row}, scale.squeeze(2));
}

at::Tensor decoded(const at::Tensor& blocks) {
  const Parts parts = parts_of(blocks);
  return parts.codes.to(at::kFloat) * parts.scales.unsqueeze(3);
}

}  // namespace pm::ops
