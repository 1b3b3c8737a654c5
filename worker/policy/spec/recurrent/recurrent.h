// SPDX-License-Identifier: Apache-2.0
// A block that keeps a state of each sequence in place of keys and values.
#pragma once
#include <variant>

#include "worker/policy/spec/recurrent/delta_net.h"
#include "worker/policy/spec/recurrent/short_convolution.h"
#include "worker/policy/spec/recurrent/state_space.h"

namespace pm::policy {

struct Recurrent {
  std::variant<DeltaNet, ShortConvolution, StateSpace> kind;

  StateShape state() const {
    return std::visit([](const auto& block) { return block.state(); }, kind);
  }
  /// Returns a parameter whose units of sharding are those of the block.
  const Param& sharded() const {
    return std::visit([](const auto& block) -> const Param& { return block.sharded(); }, kind);
  }
  void collect(ParamCollector& all) const {
    std::visit([&](const auto& block) { block.collect(all); }, kind);
  }
};

}  // namespace pm::policy
