// SPDX-License-Identifier: Apache-2.0
// Maps ATen's scalar types and matrices to those of kernels.h.
#pragma once
#include <ATen/core/Tensor.h>

#include "worker/ops/cpu/kernels/kernels.h"
#include "worker/ops/quantized_matrix.h"

namespace pm::ops {

inline bool is_element(at::ScalarType type) { return type == at::kFloat || type == at::kHalf || type == at::kBFloat16; }
inline Element element(at::ScalarType type) {
  return type == at::kFloat  ? Element::F32
         : type == at::kHalf ? Element::F16
         : type == at::kChar ? Element::I8
                             : Element::BF16;
}

/// Describes weights [out, in], contiguous and of an element type; x, y and their rows are not set.
inline Gemv described(const at::Tensor& w) {
  return {.type = element(w.scalar_type()), .w = w.const_data_ptr(), .in = w.size(1), .out = w.size(0)};
}
inline Gemv described(const QuantizedMatrix& w) {
  return {.type = w.layout.bits == 4 ? Element::I4 : Element::I8,
          .w = w.codes.const_data_ptr(),
          .in = w.layout.in,
          .out = w.out(),
          .scales = static_cast<const uint16_t*>(w.scales.const_data_ptr()),
          .group = w.layout.group,
          .w_stride = w.codes.stride(0),
          .scale_stride = w.scales.stride(0)};
}

/// Describes inputs [begin, begin + inputs) of one row of weights of fewer than 32 bits; `begin` begins a group of
/// codes.
inline Gemv part_of_row(const Gemv& weights, int64_t row, int64_t begin, int64_t inputs) {
  const bool codes = weights.group > 0;
  const int64_t bits = weights.type == Element::I4 ? 4 : weights.type == Element::I8 ? 8 : 16;
  Gemv part = weights;
  part.w =
      static_cast<const std::byte*>(weights.w) + row * (codes ? weights.w_stride : 2 * weights.in) + begin * bits / 8;
  if (codes) part.scales += row * weights.scale_stride + begin / weights.group;
  part.in = inputs;
  part.first = 0;
  part.last = 1;
  return part;
}

}  // namespace pm::ops
