// SPDX-License-Identifier: Apache-2.0
// Runs a layer of two residual streams.
#pragma once
#include <optional>

#include "worker/layers/attention.h"
#include "worker/layers/feed_forward/mlp.h"
#include "worker/layers/layers.h"
#include "worker/policy/spec/stack.h"

namespace pm::models {

/// A layer of policy::Order::Reversible: x += attention(norm(y)), then y += mlp(norm'(x)).
class ReversibleLayer {
 public:
  ReversibleLayer(const policy::Layer&, layers::ActivationTypes, layers::Loader&);
  void operator()(layers::Residual& x, layers::Residual& y, const layers::Batch&, layers::LayerCache,
                  comm::Communicator&) const;

 private:
  layers::ActivationTypes types_;
  // The parts stand in the order in which a forward pass uses their weights.
  std::optional<layers::Norm> attention_norm_, mlp_norm_;
  layers::Attention attention_;
  layers::Mlp mlp_;
};

}  // namespace pm::models
