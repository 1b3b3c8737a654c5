// y = x W^T in fp32, whatever the weights are stored in.
#pragma once
#include <ATen/core/Tensor.h>

namespace pm::ops {

/// x [tokens, in] fp32, weight [out, in] of any float type -> [tokens, out] fp32. 16-bit weights are widened tile by tile: their stored
/// values enter fp32 products and sums, and no widened copy of a matrix ever exists whole.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight);
/// As linear, with bias [out] added in the same GEMM where ATen can. An undefined bias is none.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace pm::ops
