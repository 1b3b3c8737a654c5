// SPDX-License-Identifier: Apache-2.0
// What layers read of the tokens beside their states: one vector for each token and layer.
#pragma once
#include <optional>

#include "worker/layers/layers.h"
#include "worker/layers/lookup.h"
#include "worker/policy/spec/stack.h"

namespace pm::layers {

/// Makes the vectors of all layers.
class LayerInputs {
 public:
  LayerInputs(const policy::LayerInputs&, Loader&);
  /// Returns [tokens, layers, width] F32 for token ids [tokens] int64 and the input of the first layer [tokens,
  /// hidden].
  at::Tensor operator()(const at::Tensor& ids, const at::Tensor& x, comm::Communicator&) const;

 private:
  const policy::LayerInputs& policy_;
  Table table_;
  Linear projection_;
  std::optional<Norm> norm_;
};

/// Adds what a layer makes of its vectors to its states.
class LayerInput {
 public:
  LayerInput(const policy::LayerInput&, Loader&);
  /// Returns norm(projection(act(gate(x)) * input)) [tokens, hidden], rounded to `result`, for states x [tokens,
  /// hidden] and the vectors [tokens, width] of the layer.
  at::Tensor operator()(const at::Tensor& x, const at::Tensor& input, at::ScalarType result) const;

 private:
  policy::Activation activation_;
  Linear gate_, projection_;
  std::optional<Norm> norm_;
};

}  // namespace pm::layers
