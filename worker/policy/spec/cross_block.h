// SPDX-License-Identifier: Apache-2.0
// Rows that attend to the rows of another table: learned latents that read the input of a stack, and queries that read
// its latents (Jaegle et al., "Perceiver IO", 2021).
#pragma once
#include <cstdint>
#include <optional>

#include "worker/policy/spec/attention.h"
#include "worker/policy/spec/mlp.h"

namespace pm::policy {

/// x = q + attention(norm(q), source_norm(rows)), then x + mlp(norm(x)).
struct CrossBlock {
  Attention attention;  ///< its source is the stack itself
  std::optional<Norm> source_norm;
  bool adds_queries = true;  ///< false: x is what attention gives alone
  Mlp mlp;

  void collect(ParamCollector&) const;
};

/// Learned vectors that read the rows of a stack's input and are the rows of its layers, the same number for each
/// sequence.
struct Latents {
  Param vectors;  ///< [count, hidden]
  CrossBlock block;

  void collect(ParamCollector&) const;
};

/// What reads the latents behind the last layer. Its rows are what heads score.
struct OutputQueries {
  std::optional<Param> vectors;  ///< [count, width], learned; absent: the rows of the stack's input
  int64_t width = 0;
  CrossBlock block;

  void collect(ParamCollector&) const;
};

}  // namespace pm::policy
