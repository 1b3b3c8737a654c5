// SPDX-License-Identifier: Apache-2.0
// The feed-forward block of a layer.
#pragma once
#include <cstdint>
#include <optional>
#include <variant>

#include "worker/policy/spec/activation_ranges.h"
#include "worker/policy/spec/enums.h"
#include "worker/policy/spec/param.h"

namespace pm::policy {

/// down(act(up(x))).
struct DenseMlp {
  Activation activation = Activation::Gelu;
  int64_t width = 0;  ///< columns
  Linear up, down;

  void collect(ParamCollector&) const;
};

/// down(act(gate(x)) * up(x)).
struct GatedMlp {
  Activation activation = Activation::Silu;
  int64_t width = 0;  ///< columns
  Linear gate, up, down;

  void collect(ParamCollector&) const;
};

/// What is the same for every kind of block, and the block itself. Only the builder and worker/layers/mlp.cpp look
/// inside of a kind.
struct Mlp {
  std::optional<Norm> norm, post_norm;  ///< as Attention's
  std::variant<DenseMlp, GatedMlp> kind;
  std::optional<QuantizedMlp> quantized;  ///< the block computes in integers

  /// Returns the linear whose product is added to the residual.
  const Linear& down() const;
  /// Returns the columns that tensor-parallel ranks share.
  int64_t width() const;
  void collect(ParamCollector&) const;
};

}  // namespace pm::policy
