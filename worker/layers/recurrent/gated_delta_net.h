// SPDX-License-Identifier: Apache-2.0
// One rank's heads of a gated delta net.
#pragma once
#include "worker/layers/recurrent/recurrent_block.h"

namespace pm::layers {

/// The block of policy::DeltaNet. Results have the columns of this rank's value heads.
class DeltaNet : public RecurrentBlock {
 public:
  DeltaNet(const policy::DeltaNet&, Loader&);
  at::Tensor operator()(const at::Tensor& x, const Batch&, LayerState* state, comm::Communicator&) const override;
  const RowLinear& out() const override { return out_; }

 private:
  at::Tensor read(Rows) const override;
  int64_t key_heads_, values_per_key_, key_dim_, value_dim_;
  ColumnLinear in_;           ///< stacked: queries, keys, values, output gate
  ColumnLinear gates_;        ///< stacked: rates, steps
  std::vector<Weight> taps_;  ///< of queries, keys, values
  Weight decay_, step_bias_;
  Norm norm_;
  RowLinear out_;
};

}  // namespace pm::layers
