// SPDX-License-Identifier: Apache-2.0
// Fused operations: each replaces several ATen operations, whose dispatch costs more than their arithmetic for a single
// token.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

namespace pm::ops {

/// LayerNorm, (x - mean) / sqrt(variance + eps), over the last dimension of x, computed in fp32 or better and rounded
/// once to `result`. weight, bias [width] are of any float type or undefined. x is fp32, or of the device's
/// activation_type() (linear.h), as `result` is.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps,
                      at::ScalarType result = at::kFloat);
/// RMSNorm (Zhang and Sennrich 2019), x / sqrt(mean of x^2 + eps), likewise. `weight_offset` is added to the weight: 1
/// for Gemma's RMSNorm.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, double weight_offset = 0,
                    at::ScalarType result = at::kFloat);

/// Replaces x by x + residual, rounded to the type of the residual, and returns the norm of the sum. Where x has that
/// type, it is overwritten. An fp32 x beside a 16-bit residual is a sum over ranks.
at::Tensor fused_add_layer_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                                const at::Tensor& bias, double eps, at::ScalarType result = at::kFloat);
at::Tensor fused_add_rms_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight, double eps,
                              double weight_offset = 0, at::ScalarType result = at::kFloat);

/// Cosine and sine of position x frequency, both times `factor`: [tokens, 1, n] fp32 each, from positions [tokens]
/// int64 and frequencies [n] fp32.
struct Angles {
  at::Tensor cos, sin;
};
Angles rotary_angles(const at::Tensor& positions, const at::Tensor& frequencies, double factor);
/// Rotates pairs of the first 2 n elements of each head of x [tokens, heads, head_dim] by their angles; the other
/// elements stay. The result has the type of x. `is_neox`: pairs are (i, n + i) as in GPT-NeoX, else (2 i, 2 i + 1) as
/// in GPT-J.
at::Tensor rotate(const at::Tensor& x, const Angles&, bool is_neox);

/// Rotary embedding of a step's queries and keys. Undefined angles: no rotation.
struct Rotation {
  Angles angles;
  bool is_neox = true, rotate_values = false;  ///< pairs as in rotate(); rotate_values: values are rotated too
  at::Tensor query_factors;  ///< [tokens, 1, 1] fp32, by which the caller multiplies queries; undefined: none
};

/// A norm of each head's vector before its rotation: rms_norm() or layer_norm() over head_dim, in fp32.
struct HeadNorm {
  bool is_rms = true;
  at::Tensor weight, bias;  ///< [head_dim] of any float type or undefined; RMSNorm has no bias
  double eps = 0;
  double weight_offset = 0;  ///< of RMSNorm
};
/// The norms of a layer's queries and keys (Qwen3).
struct HeadNorms {
  std::optional<HeadNorm> query, key;
};

/// SwiGLU's activation: x [tokens, 2 width] -> silu(first half) * second half [tokens, width] in the type of x.
at::Tensor silu_and_mul(const at::Tensor& x);

}  // namespace pm::ops
