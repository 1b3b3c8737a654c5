// SPDX-License-Identifier: Apache-2.0
// The gated delta rule (Yang et al. 2025): linear attention whose state forgets, and writes what it does not know yet.
#pragma once
#include <ATen/core/Tensor.h>

namespace pm::ops {

/// Tokens of one sequence, or one token of each of several sequences, all F32 and of one device. Queries and keys have
/// length 1; queries are divided by sqrt(key_dim).
struct DeltaRule {
  at::Tensor queries, keys;  ///< [tokens, heads, key_dim]
  at::Tensor values;         ///< [tokens, heads, value_dim]
  at::Tensor decays;         ///< [tokens, heads]: logarithms of what the state is multiplied by, at most 0
  at::Tensor rates;          ///< [tokens, heads]: beta, the share of a value that is written
};

/// Runs tokens one after another from `state` [heads, key_dim, value_dim], which becomes that behind the last of them:
///   S = exp(decay) S,  S = S + key (rate (value - key^T S))^T,  result = query^T S
/// Returns [tokens, heads, value_dim]. Many tokens are computed by chunks: the same numbers up to the order of sums.
at::Tensor delta_rule(const DeltaRule&, at::Tensor& state);
/// Runs one token of each sequence. `states` [tokens, heads, key_dim, value_dim] become those behind it.
at::Tensor delta_rule_step(const DeltaRule&, at::Tensor& states);

}  // namespace pm::ops
