// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding (Su et al. 2021) with the scalings of Hugging Face's modeling_rope_utils.
#pragma once
#include <ATen/core/Tensor.h>

#include "worker/ops/fused.h"
#include "worker/policy/spec/attention.h"

namespace pm::layers {

class Rotary {
 public:
  /// Throws Error{UnknownArchitecture} for a kind of scaling that is not served, Error{ModelUnreadable} for one without
  /// its numbers.
  explicit Rotary(const policy::Rotary&, at::Device device = at::kCPU);
  using Angles = ops::Angles;
  /// Returns the angles of positions [tokens] int64: cos and sin, [tokens, 1, dims / 2] F32, times the attention
  /// factor.
  Angles angles(const at::Tensor& positions) const;
  /// Returns the rotation of positions, for fused kernels.
  ops::Rotation rotation(const at::Tensor& positions) const;
  /// Returns true when values are rotated too.
  bool values() const { return values_; }
  /// Rotates the first `dims` of x [tokens, heads, head_dim]; the rest stays.
  at::Tensor rotate(const at::Tensor& x, const Angles&) const;

 private:
  policy::RotaryStyle style_;
  bool values_;
  double factor_ = 1;       ///< of cos and sin (YaRN)
  at::Tensor frequencies_;  ///< [dims / 2] fp32
};

}  // namespace pm::layers
