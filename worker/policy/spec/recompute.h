// SPDX-License-Identifier: Apache-2.0
// Generation without a KV cache.
#pragma once
#include <cstdint>
#include <optional>

namespace pm::policy {

/// Each step of generation runs the model on the whole sequence, whose tokens may see those behind them. The next token
/// is that of the scores of the last row.
struct Recompute {
  /// Steps that read the last two tokens and the states that earlier steps left of those before them. The rows of a
  /// step stand for those of all steps so far.
  struct Overlap {
    int64_t memory;  ///< states that a step keeps at most, as XLNet's mem_len; later steps read all but the last two,
                     ///< those of its last token and its target; 0: all
  };

  bool target = false;  ///< the last row is that of a target behind the sequence (Input::targets), not of a token
  int64_t append = -1;  ///< the token that stands behind each sequence in a step, whose row is the last one; -1: none
  std::optional<Overlap> overlap;  ///< with a target
};

}  // namespace pm::policy
