// SPDX-License-Identifier: Apache-2.0
// One rank's heads of a gated delta net.
#pragma once
#include "worker/layers/layers.h"
#include "worker/layers/recurrent/state.h"
#include "worker/ops/recurrent/delta_rule.h"
#include "worker/policy/spec/recurrent/delta_net.h"

namespace pm::layers {

class DeltaNet {
 public:
  DeltaNet(const policy::DeltaNet&, Loader&);
  /// Computes the block of policy::DeltaNet for x [tokens, hidden]: the result of this rank's heads [tokens, its value
  /// heads x value_dim], in the type of x, before the output projection. With `state`, each sequence of the batch goes
  /// on from the row of its slot, or from zeros at its first token, and leaves its state there. Without, all begin.
  at::Tensor operator()(const at::Tensor& x, const Batch&, LayerState* state) const;
  const RowLinear& out() const { return out_; }

 private:
  struct Step;
  at::Tensor convolved(const at::Tensor& inputs, const at::Tensor& taps) const;
  ops::DeltaRule rule(const at::Tensor& convolved, const at::Tensor& decays, const at::Tensor& rates) const;
  at::Tensor run_sequence(const Step&, const ops::SequenceSpan&, LayerState*, int64_t slot) const;
  at::Tensor run_tokens(const Step&, const at::Tensor& rows, const at::Tensor& slots, LayerState&) const;
  int64_t key_heads_, values_per_key_, key_dim_, value_dim_, taps_;
  ColumnLinear in_;     ///< stacked: queries, keys, values, output gate
  ColumnLinear gates_;  ///< stacked: rates, steps
  Weight query_taps_, key_taps_, value_taps_;
  Weight decay_, step_bias_;
  Norm norm_;
  RowLinear out_;
};

}  // namespace pm::layers
