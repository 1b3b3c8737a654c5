// What ATen does in many small operations, in one: at one token each of these costs more to dispatch than to compute.
#pragma once
#include <ATen/core/Tensor.h>

namespace pm::ops {

/// LayerNorm, (x - mean) / sqrt(variance + eps), over the last dimension of x fp32. gain, bias [width] of any float type or undefined.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& bias, double eps);
/// RMSNorm (Zhang and Sennrich 2019), x / sqrt(mean of x^2 + eps), over the last dimension of x fp32. gain [width] of any float type or undefined;
/// `centre` is added to it.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& gain, double eps, double centre = 0);

/// The same of x + residual, which x becomes.
at::Tensor sum_layer_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& gain, const at::Tensor& bias, double eps);
at::Tensor sum_rms_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& gain, double eps, double centre = 0);

/// cos and sin of position x frequency, both times `factor`: positions [tokens] int64, frequencies [n] fp32 -> [tokens, 1, n] fp32 each.
struct Angles { at::Tensor cos, sin; };
Angles rotary_angles(const at::Tensor& positions, const at::Tensor& frequencies, double factor);
/// Turns pairs of the first 2 n of x [tokens, heads, head_dim] fp32 by their angles; the rest stays. `halves`: pairs are (i, n + i), else (2 i, 2 i + 1).
at::Tensor rotate(const at::Tensor& x, const Angles&, bool halves);

/// How a step's queries and keys are turned. Angles that are not defined: not at all.
struct Rotation {
  Angles angles;
  bool halves = true, values = false;   ///< pairs as rotate()'s; whether values are turned too
};

/// x [tokens, 2 width] fp32 -> silu(first half) * second half [tokens, width].
at::Tensor gated_silu(const at::Tensor& x);

}  // namespace pm::ops
