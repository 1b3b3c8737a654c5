// SPDX-License-Identifier: Apache-2.0
// The feed-forward block of a layer.
#pragma once
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "worker/policy/spec/activation_ranges.h"
#include "worker/policy/spec/enums.h"
#include "worker/policy/spec/experts.h"
#include "worker/policy/spec/param.h"

namespace pm::policy {

/// xIELU (Huang and Schlag 2024), an activation with four numbers of its own: softplus(positive) x^2 + beta x above 0,
/// (beta + softplus(negative)) (expm1(min(x, eps)) - x) + beta x elsewhere.
struct Xielu {
  Param positive, negative, beta, eps;

  void collect(ParamCollector&) const;
};

/// down(act(up(x))).
struct DenseMlp {
  Activation activation = Activation::Gelu;
  std::optional<Xielu> xielu;  ///< in place of `activation`
  int64_t width = 0;           ///< columns
  Linear up, down;

  void collect(ParamCollector&) const;
};

/// down(act(gate(x)) * (up(x) + up_offset)); of experts without a gate down(act(up(x))).
struct GatedMlp {
  bool has_gate = true;
  Activation activation = Activation::Silu;
  double limit = 0;  ///< 0: none; else gate(x) is at most so much, and up(x) lies between it and its negative
  double up_offset = 0;
  int64_t width = 0;  ///< columns
  Linear gate, up, down;

  void collect(ParamCollector&) const;
};

/// The sum of what the chosen experts make of a token, and of what a block makes that all tokens go through.
struct Experts {
  Router router;
  std::vector<GatedMlp> experts;  ///< at least one, of equal widths
  bool weigh_input = false;       ///< the router's weights multiply what an expert reads, not what it makes (Llama 4)
  std::optional<GatedMlp> shared;
  std::optional<Linear> shared_gate;  ///< [1, hidden]: the sigmoid of its product multiplies what `shared` makes
  double shared_factor = 1;           ///< multiplies that, too

  void collect(ParamCollector&) const;
};

/// What is the same for every kind of block, and the block itself. Only the builder and worker/layers/mlp.cpp look
/// inside of a kind.
struct Mlp {
  std::optional<Norm> norm, post_norm;  ///< as Attention's
  std::variant<DenseMlp, GatedMlp, Experts> kind;
  std::optional<QuantizedMlp> quantized;  ///< the block computes in integers

  /// Returns the linear whose product is added to the residual; of experts that of the first.
  const Linear& down() const;
  /// Returns the columns that tensor-parallel ranks share; of experts those of one, or of the shared block if it has
  /// more.
  int64_t width() const;
  void collect(ParamCollector&) const;
};

}  // namespace pm::policy
