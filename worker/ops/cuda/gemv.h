// SPDX-License-Identifier: Apache-2.0
// y = x W^T for a few rows of x, bound by reading W: each weight is read once, 16 bytes at a time; products and sums
// are fp32.
#pragma once
#include "worker/ops/cuda/types.h"

namespace pm::ops::cuda {

/// Largest number of rows of x for which gemv reads W once; more rows read W several times.
inline constexpr int64_t max_gemv_rows = 8;

struct Gemv {
  const void* x = nullptr;  ///< [rows, in], rows x_stride elements apart
  int64_t x_stride = 0;
  Element x_type = Element::F32;
  const void* w = nullptr;        ///< [out, in]
  Element w_type = Element::F32;  ///< I8: symmetric, a weight is its number times its scale
  const void* scales = nullptr;   ///< I8 only: bf16 [out, ceil(in / scale_group)]
  int64_t scale_group = 0;        ///< inputs that share a scale: a multiple of 16, or at least `in`: one per output
  const void* bias = nullptr;     ///< [out]; nullptr: none
  Element bias_type = Element::F32;
  void* y = nullptr;              ///< [rows, out]
  Element y_type = Element::F32;  ///< fp32 for partial sums that ranks add
  int64_t rows = 0, in = 0, out = 0;
};
/// Launches the kernel. The bits of an element depend on neither `rows` nor the other outputs. x_type is fp32 or, for
/// 16-bit weights, theirs; any type for INT8 weights. Throws std::invalid_argument for other pairs.
void gemv(const Gemv&, Stream);

}  // namespace pm::ops::cuda
