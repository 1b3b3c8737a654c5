// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding (Su et al. 2021) with the scalings of Hugging Face's modeling_rope_utils.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "worker/ops/fused.h"
#include "worker/policy/spec/attention.h"

namespace pm::layers {

class Rotary {
 public:
  /// Throws Error{UnknownArchitecture} for a kind of scaling that is not served, Error{ModelUnreadable} for one without
  /// its numbers.
  explicit Rotary(const policy::Rotary&, at::Device device = at::kCPU);
  /// Returns the rotation at positions [tokens] int64. Its cosines and sines are [tokens, 1, dims / 2] F32, times the
  /// attention factor. `long_rows` and `axes` are Batch's.
  ops::Rotation rotation(const at::Tensor& positions, const at::Tensor& long_rows = {},
                         const at::Tensor& axes = {}) const;

 private:
  ops::Angles angles(const at::Tensor& positions, const at::Tensor& long_rows, const at::Tensor& axes) const;
  policy::RotaryStyle style_;
  bool values_;
  std::optional<policy::LongRope> long_rope_;
  std::optional<policy::QueryGrowth> query_growth_;
  double factor_ = 1;                          ///< of cos and sin (YaRN, LongRoPE)
  at::Tensor axis_of_frequency_;               ///< [dims / 2] int64: policy::RotaryAxes; undefined: there is one axis
  at::Tensor frequencies_, long_frequencies_;  ///< [dims / 2] fp32; the second for long sequences (LongRoPE)
};

/// The rotary embeddings of a stack's layers. Layers with equal parameters share one, so that a step makes its angles
/// once.
class RotaryTable {
 public:
  explicit RotaryTable(at::Device device) : device_(device) {}
  /// Adds the rotary embedding of a layer unless there is an equal one; returns its index. Throws as Rotary.
  size_t add(const policy::Rotary&);
  /// Makes the rotations of a step at positions [tokens] int64, one for each index; `long_rows` and `axes` are Batch's.
  /// They are the step's own: with CUDA graphs, their tensors are memory of the graph, and each replay fills them for
  /// the positions of its step.
  std::vector<ops::Rotation> rotations(const at::Tensor& positions, const at::Tensor& long_rows = {},
                                       const at::Tensor& axes = {}) const;

 private:
  at::Device device_;
  std::vector<policy::Rotary> parameters_;
  std::vector<Rotary> rotaries_;  ///< of parameters_
};

}  // namespace pm::layers
