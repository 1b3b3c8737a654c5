// SPDX-License-Identifier: Apache-2.0
// Conversion between tensors and the arrays of requests.
#pragma once
#include <ATen/core/Tensor.h>

#include "worker/base/array.h"

namespace pm::models {

/// Copies a tensor into an array of 64-bit integers or F32.
Array array_of(const at::Tensor&);
/// Returns a tensor that views the array's memory.
at::Tensor tensor_of(const Array&);

}  // namespace pm::models
