// SPDX-License-Identifier: Apache-2.0
// Generation without a KV cache.
#pragma once
#include <cstdint>

namespace pm::policy {

/// Each step of generation runs the model on the whole sequence, whose tokens may see those behind them. The next token
/// is that of the scores of the last row.
struct Recompute {
  bool target = false;  ///< the last row is that of a target behind the sequence (Input::targets), not of a token
  int64_t append = -1;  ///< the token that stands behind each sequence in a step, whose row is the last one; -1: none
};

}  // namespace pm::policy
