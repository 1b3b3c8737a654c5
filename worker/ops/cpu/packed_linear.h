// SPDX-License-Identifier: Apache-2.0
// Linear layers by a CPU's vector units: of any number of rows for models in BF16 where the CPU multiplies bf16
// numbers, of many rows otherwise.
#pragma once
#include <ATen/core/Tensor.h>

#include "worker/ops/cpu/kernels/kernels.h"

namespace pm::ops {

/// x [rows, in] fp32 times the transposed weights, plus `bias` [out] of any element type unless it is undefined; ->
/// [rows, out] fp32. `weights` describes them: type, w, in, out, and scales of codes. Operands are those of `products`:
/// bf16 for weights in BF16 or codes, where x and the widened codes are rounded to bf16; integers for codes of eight
/// bits with a scale for each row of at most most_integer_inputs, where x is rounded as by rounded_inputs(); fp32 for
/// all. The bits of a row of the result do not depend on the other rows.
at::Tensor packed_linear(const at::Tensor& x, const Gemv& weights, const at::Tensor& bias, const PackedProducts&);

}  // namespace pm::ops
