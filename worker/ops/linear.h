// SPDX-License-Identifier: Apache-2.0
// Linear layers, y = x W^T + bias, in fp32 for weights of any float type.
#pragma once
#include <ATen/core/Tensor.h>

namespace pm::ops {

/// x [tokens, in] fp32, weight [out, in] of any float type -> [tokens, out] fp32. 16-bit weights are widened tile by
/// tile, so that no fp32 copy of a whole matrix exists; products and sums are fp32. A device with matrix units may
/// round x to the type of 16-bit weights first, for any number of tokens; there x may also have that type.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight);
/// Adds bias [out] in the same GEMM where ATen can. An undefined bias is no bias.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace pm::ops
