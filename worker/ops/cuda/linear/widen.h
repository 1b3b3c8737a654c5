// SPDX-License-Identifier: Apache-2.0
// Widens rows of a quantised matrix, for products of many rows by cuBLAS.
#pragma once
#include "worker/ops/cuda/types.h"

namespace pm::ops::cuda {

/// out[o, i] = numbers[o, i] x scales[o, i / scale_group], rounded once to out_type.
struct Widen {
  const void* numbers = nullptr;  ///< [rows, in], rows `stride` bytes apart
  int64_t stride = 0;
  Element numbers_type = Element::I8;  ///< the quantised type
  const void* scales = nullptr;        ///< bf16 [rows, ceil(in / scale_group)], rows scale_stride elements apart
  int64_t scale_stride = 0;
  int64_t scale_group = 0;  ///< inputs that share a scale, at least one
  void* out = nullptr;      ///< [rows, in], contiguous
  Element out_type = Element::F32;
  int64_t rows = 0, in = 0;
};
/// Launches the kernel. Throws std::invalid_argument for types that it does not take.
void widen(const Widen&, Stream);

}  // namespace pm::ops::cuda
