// SPDX-License-Identifier: Apache-2.0
// Runs a layer of two streams of rows that attend to each other.
#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <optional>

#include "worker/layers/attention.h"
#include "worker/layers/feed_forward/mlp.h"
#include "worker/layers/layers.h"
#include "worker/policy/spec/stack.h"

namespace pm::models {

/// A post-norm layer of policy::CoAttention. The rows of both streams are one tensor, so that the block that both
/// directions share is multiplied once. Each of the three steps ends in one all-reduce for both streams.
class TwoStreamLayer {
 public:
  TwoStreamLayer(const policy::Layer&, layers::ActivationTypes, layers::Loader&);
  /// `batch` has the rows of the first stream, then those of the second; its `streams` have the sequences of each.
  /// Captures what the first stream sees of the second.
  void operator()(layers::Residual& state, const layers::Batch& batch, comm::Communicator&) const;

 private:
  using Norms = std::array<std::optional<layers::Norm>, 2>;
  /// Sets each stream to norm(x + block(x)); `partial` gives the partial sum of a stream, without the bias.
  template <typename Partial>
  void step(layers::Residual& state, int64_t first, const std::array<at::Tensor, 2>& biases, const Norms&,
            const Partial& partial, comm::Communicator&) const;
  layers::ActivationTypes types_;
  // The parts stand in the order in which a forward pass uses their weights.
  layers::Attention across_;
  std::optional<layers::Norm> across_norm_;
  std::array<layers::Attention, 2> attentions_;
  Norms attention_norms_;
  std::array<layers::Mlp, 2> mlps_;
  Norms mlp_norms_;
};

}  // namespace pm::models
