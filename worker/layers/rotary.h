// Rotary position embedding (Su et al. 2021) with the scalings of Hugging Face's modeling_rope_utils.
#pragma once
#include <ATen/core/Tensor.h>

#include "worker/ops/fused.h"
#include "worker/policy/model.h"

namespace pm::layers {

class Rotary {
 public:
  /// Throws Error{Model, "UnknownArchitecture"} for a kind of scaling that is not served, Error{Model, "ModelUnreadable"} for one without
  /// its numbers.
  explicit Rotary(const policy::Rotary&, at::Device device = at::kCPU);
  using Angles = ops::Angles;
  /// The angles of positions [tokens] int64: cos and sin, [tokens, 1, dims / 2] fp32, the attention factor in them.
  Angles angles(const at::Tensor& positions) const;
  /// All of it for positions.
  ops::Rotation rotation(const at::Tensor& positions) const;
  /// Whether values are turned too.
  bool values() const { return values_; }
  /// Turns the first `dims` of x [tokens, heads, head_dim]; the rest stays.
  at::Tensor turn(const at::Tensor& x, const Angles&) const;

 private:
  policy::RotaryStyle style_;
  bool values_;
  double factor_ = 1;        ///< of cos and sin (YaRN)
  at::Tensor frequencies_;   ///< [dims / 2] fp32
};

}  // namespace pm::layers
