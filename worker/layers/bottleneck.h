// SPDX-License-Identifier: Apache-2.0
// The narrower states on which the blocks of a layer run, and the way back.
#pragma once
#include <optional>

#include "worker/layers/layers.h"
#include "worker/policy/spec/bottleneck.h"

namespace pm::layers {

/// Makes what the blocks of a layer read.
class InputBottleneck {
 public:
  /// `narrow` are the states to which blocks add; queries and keys read `attended`, values read `values`.
  struct States {
    at::Tensor narrow, attended, values;
  };
  InputBottleneck(const policy::Bottleneck&, Loader&);
  States operator()(const at::Tensor& x, comm::Communicator&) const;  ///< from x [tokens, hidden]

 private:
  bool wide_, has_attention_;
  GatheredLinear linears_;  ///< the narrow states, and what queries and keys read
  std::optional<Norm> norm_, attention_norm_;
};

/// Widens the states of the blocks, adds them to those of the layer, and normalizes the sum.
class OutputBottleneck {
 public:
  OutputBottleneck(const policy::Bottleneck&, Loader&);
  /// `narrow` [tokens, width], x [tokens, hidden] -> [tokens, hidden].
  at::Tensor operator()(const at::Tensor& narrow, const at::Tensor& x, comm::Communicator&) const;

 private:
  GatheredLinear linear_;
  std::optional<Norm> norm_;
};

}  // namespace pm::layers
