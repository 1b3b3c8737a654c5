// SPDX-License-Identifier: Apache-2.0
// One rank's heads of a selective state space (Mamba-2).
#pragma once
#include "worker/layers/recurrent/recurrent_block.h"

namespace pm::layers {

/// The block of policy::StateSpace. Results have the columns of this rank's heads.
class StateSpace : public RecurrentBlock {
 public:
  StateSpace(const policy::StateSpace&, Loader&);
  at::Tensor operator()(const at::Tensor& x, const Batch&, LayerState* state, comm::Communicator&) const override;
  const RowLinear& out() const override { return out_; }

 private:
  at::Tensor read(Rows) const override;
  at::Tensor normed(const at::Tensor& x, comm::Communicator&) const;
  int64_t heads_, groups_;  ///< of this rank
  int64_t head_dim_, state_size_, all_values_;
  bool shared_;  ///< all ranks have the one group
  double least_step_, most_step_, eps_;
  ColumnLinear in_;                    ///< stacked: output gate, values, what is written and read with, steps
  std::vector<Weight> taps_, biases_;  ///< of values, of what is written and read with
  Weight decay_, step_bias_, skip_, norm_;
  RowLinear out_;
};

}  // namespace pm::layers
