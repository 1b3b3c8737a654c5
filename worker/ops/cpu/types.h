// SPDX-License-Identifier: Apache-2.0
// Maps ATen's scalar types to the element types of kernels.h.
#pragma once
#include <c10/core/ScalarType.h>

#include "worker/ops/cpu/kernels.h"

namespace pm::ops {

inline bool is_element(at::ScalarType type) { return type == at::kFloat || type == at::kHalf || type == at::kBFloat16; }
inline Element element(at::ScalarType type) {
  return type == at::kFloat ? Element::F32 : type == at::kHalf ? Element::F16 : Element::BF16;
}

}  // namespace pm::ops
