// SPDX-License-Identifier: Apache-2.0
// One rank's channels of a short convolution with gates.
#pragma once
#include "worker/layers/recurrent/recurrent_block.h"

namespace pm::layers {

/// The block of policy::ShortConvolution. Results have the columns of this rank's channels.
class ShortConvolution : public RecurrentBlock {
 public:
  ShortConvolution(const policy::ShortConvolution&, Loader&);
  at::Tensor operator()(const at::Tensor& x, const Batch&, LayerState* state, comm::Communicator&) const override;
  const RowLinear& out() const override { return out_; }

 private:
  at::Tensor read(Rows rows) const override { return rows.convolved; }
  ColumnLinear in_;  ///< stacked: the gate before the convolution, the one behind it, its inputs
  std::vector<Weight> taps_, biases_;
  RowLinear out_;
};

}  // namespace pm::layers
