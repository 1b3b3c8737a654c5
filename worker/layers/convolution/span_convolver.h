// SPDX-License-Identifier: Apache-2.0
// One rank's heads that convolve their neighborhood with kernels made of it.
#pragma once
#include "worker/layers/layers.h"
#include "worker/policy/spec/attention.h"

namespace pm::layers {

class SpanConvolver {
 public:
  SpanConvolver(const policy::Attention&, Loader&);
  /// Returns the result of this rank's heads [tokens, local heads x head_dim] for x [tokens, hidden] and the queries of
  /// the attention [tokens, local heads x head_dim]. Beyond the ends of a sequence all is zero. One all-reduce adds
  /// what the heads of all ranks tell of each kernel.
  at::Tensor operator()(const at::Tensor& x, const at::Tensor& queries, const Batch&, comm::Communicator&) const;

 private:
  int64_t taps_;
  Range heads_;
  at::Tensor depthwise_;  ///< [taps, hidden]
  ColumnLinear pointwise_;
  RowLinear kernel_;
  ColumnLinear values_;
};

}  // namespace pm::layers
