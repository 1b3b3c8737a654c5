// SPDX-License-Identifier: Apache-2.0
// y = x W^T for a few rows of x, bound by reading W: each weight is read once, 16 bytes at a time, and sums are fp32.
#pragma once
#include "worker/ops/cuda/types.h"

namespace pm::ops::cuda {

/// Largest number of rows of x for which gemv() reads W once: on tensor cores, and by fp32 arithmetic. More rows read W
/// several times.
inline constexpr int64_t max_tensor_core_rows = 8, max_gemv_rows = 4;

/// Largest number of inputs of int8 weights that have more than one scale for each output.
inline constexpr int64_t max_grouped_inputs = int64_t{1} << 19;

struct Gemv {
  const void* x = nullptr;  ///< [rows, in], rows x_stride elements apart
  int64_t x_stride = 0;
  Element x_type = Element::F32;  ///< fp32, which is rounded to the type of the products, or that type
  const void* w = nullptr;        ///< [out, in], rows w_stride elements apart
  int64_t w_stride = 0;           ///< 0: in
  Element w_type = Element::F32;  ///< I8: symmetric, a weight is its number times its scale
  const void* scales = nullptr;   ///< I8 only: bf16 [out, ceil(in / scale_group)], rows scale_stride elements apart
  int64_t scale_stride = 0;       ///< 0: ceil(in / scale_group)
  int64_t scale_group = 0;        ///< inputs that share a scale: a multiple of 16, or at least `in`: one per output
  /// I8 only: the type to which x and weights are rounded before they are multiplied. Other weights are multiplied as
  /// they are, and x is rounded to their type.
  Element compute = Element::F32;
  const void* bias = nullptr;  ///< [out]; nullptr: none
  Element bias_type = Element::F32;
  void* y = nullptr;              ///< [rows, out]
  Element y_type = Element::F32;  ///< fp32 for partial sums that ranks add
  int64_t rows = 0, in = 0, out = 0;
  int multiprocessors = 132;  ///< of the device: decides among how many warps the inputs of an output are split
};
/// Launches the kernel. The bits of an element depend on neither `rows` nor the other outputs, but on `in`, `out` and
/// `multiprocessors`: sums of split inputs are added in a fixed order. Throws std::invalid_argument for types that no
/// kernel takes.
void gemv(const Gemv&, Stream);
/// Returns whether gemv() uses tensor cores: products are of a 16-bit type, and all rows can be loaded 16 bytes at a
/// time.
bool gemv_uses_tensor_cores(const Gemv&);

}  // namespace pm::ops::cuda
