// SPDX-License-Identifier: Apache-2.0
// One rank's heads of multi-head latent attention. The projections to latents, and the cache of latents, are whole on
// every rank.
#pragma once
#include <optional>

#include "worker/layers/layers.h"
#include "worker/policy/spec/attention.h"

namespace pm::layers {

class LatentAttention {
 public:
  LatentAttention(const policy::Attention&, Loader&);
  /// Computes the block of policy::LatentAttention for x [tokens, hidden]: the result of this rank's heads [tokens, its
  /// heads x value_dim], in the type of x, before the output projection. With `cache` [blocks, 1, 16, width], the
  /// tokens' latents are written to it first, and every sequence attends to its blocks. `rotation` is that of the
  /// layer's rotary embedding at the batch's positions.
  at::Tensor operator()(const at::Tensor& x, const Batch&, const ops::Rotation& rotation, at::Tensor* cache,
                        comm::Communicator&) const;
  const RowLinear& out() const { return out_; }

 private:
  struct Step;
  Step project(const at::Tensor& x, const ops::Rotation&) const;
  bool expands(const ops::SequenceSpan&) const;
  at::Tensor absorbed(const at::Tensor& q, const Step&, const ops::StepSequences&, at::Tensor& cache) const;
  at::Tensor expanded(const at::Tensor& q, const at::Tensor& rows, const Step&, const ops::SequenceSpan&,
                      at::Tensor* probabilities) const;
  int64_t heads_, own_dims_, rotary_dims_, value_dim_, rank_;
  ops::AttentionOptions options_;
  ColumnLinear in_;  ///< stacked: queries or what they are made of, then latents and the shared key
  std::optional<Norm> query_norm_;
  std::optional<ColumnLinear> query_;  ///< of the normed query_down; absent: in_ makes queries
  Norm norm_;
  Weight key_, value_;
  RowLinear out_;
  std::vector<int64_t> heads_of_rank_;  ///< heads of every rank, for gathering attentions
};

}  // namespace pm::layers
