// SPDX-License-Identifier: Apache-2.0
// LayerNorm and RMSNorm of rows, fused with the residual addition before them.
#pragma once
#include "worker/ops/cuda/types.h"

namespace pm::ops::cuda {

/// y = norm(x + residual), for rows of `width`. LayerNorm: (v - mean) / sqrt(variance + eps); RMSNorm (Zhang and
/// Sennrich 2019): v / sqrt(mean of v^2 + eps); then times (weight_offset + weight), plus bias. Statistics are fp32 and
/// computed in two passes over the row.
///
/// The types of x, of the sum and of y may differ: a sum over ranks is fp32 beside a residual of 16 bits. Loads are of
/// 16 bytes where all pointers and rows are aligned to them, all 16-bit types are one type, and x is fp32 where a
/// residual is; else an element at a time.
struct Norm {
  bool rms = false;
  const void* x = nullptr;  ///< [rows, width], rows x_stride elements apart
  int64_t x_stride = 0;
  Element x_type = Element::F32;
  const void* residual = nullptr;  ///< [rows, width]; nullptr: none
  void* sum = nullptr;  ///< [rows, width]: x + residual, rounded to `sum_type`, of which the norm is taken; may be
                        ///< `residual`, or x where the types are equal; needed with a residual
  Element sum_type = Element::F32;  ///< of residual and sum
  void* y = nullptr;                ///< [rows, width]
  Element y_type = Element::F32;
  const void* weight = nullptr;  ///< [width]; nullptr: 1
  const void* bias = nullptr;    ///< [width]; nullptr: 0
  Element parameters = Element::F32;
  float eps = 1e-5f, weight_offset = 0;
  int64_t rows = 0, width = 0;
};
/// Launches the kernel. Throws std::invalid_argument for a residual without a sum.
void norm(const Norm&, Stream);

}  // namespace pm::ops::cuda
