// SPDX-License-Identifier: Apache-2.0
// Linear layers, y = x W^T + bias, with sums in fp32 for weights of any float type; and the type of activations.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>

#include <optional>

namespace pm::ops {

/// Returns the type of activations between the layers of a model whose weights compute in `compute`: fp32, or on
/// devices that multiply 16-bit numbers the model's 16-bit type, as transformers has it. Operations on such a device
/// take either type and sum in fp32. Elsewhere all activations are fp32.
at::ScalarType activation_type(c10::DeviceType, at::ScalarType compute);

/// Returns up to how many rows of x linear() gives a row the same bits whatever rows are beside it, in a model whose
/// weights compute in `compute`, stored as such or as codes. nullopt: the device promises that for no number.
std::optional<int64_t> rows_of_equal_bits(c10::DeviceType, at::ScalarType compute, bool as_codes);

/// x [tokens, in], weight [out, in] of any float type -> [tokens, out] of type `result`, rounded once. 16-bit weights
/// are widened tile by tile, so that no fp32 copy of a whole matrix exists; products and sums are fp32. A device with
/// matrix units, or vector units for it, may round x to the type of 16-bit weights first, for any number of tokens.
/// Partial sums that ranks add are fp32.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight);
/// Adds bias [out] in the same GEMM where ATen can. An undefined bias is no bias.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  at::ScalarType result = at::kFloat);

/// linear() without rounding fp32 x, for a few outputs that are compared with each other. Where a device rounds x, it
/// multiplies three parts of it, of which each is what the parts before it lack.
at::Tensor unrounded_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace pm::ops
