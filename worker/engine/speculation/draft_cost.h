// SPDX-License-Identifier: Apache-2.0
// Measures what drafts cost: steps with drafts are compared with steps of as many sequences without them.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "worker/engine/speculation/draft_length.h"

namespace pm::engine {

/// The cost of drafts by the number of sequences in a step. A step of one sequence is bound by the memory that the
/// weights are read from, and a further row costs little; a step of many is bound by arithmetic, and a further row
/// costs as much as a token. So speculation ends by itself under load.
class DraftCost {
 public:
  /// Returns the price in the next step of `sequences` sequences: a guess until enough was measured.
  DraftPrice price(int64_t sequences) const;
  /// Returns false if the next step should have no drafts, so that the time of such steps is known, and stays so.
  bool may_draft(int64_t sequences) const;
  /// Learns what was planned: `drafts` rows of drafts beside those of `sequences` sequences, or none.
  void planned(int64_t sequences, int64_t drafts);
  /// Learns how long such a step took.
  void observe(int64_t sequences, int64_t drafts, double seconds);

 private:
  static constexpr int64_t steps_per_plain_step = 64;
  /// Steps of about as many sequences.
  struct Class {
    /// Steps with drafts since one without. The first one without comes early, for nothing is known before.
    int64_t since_plain = steps_per_plain_step - 8;
    double plain_seconds = 0;  ///< of a step without drafts; 0: not known
    /// Sums of a linear regression of the cost on the number of drafts, in which older steps count less.
    double weight = 0, drafts = 0, squares = 0, costs = 0, products = 0;
  };
  static constexpr size_t classes = 32;
  static size_t index_of(int64_t sequences);
  std::array<Class, classes> classes_;
};

}  // namespace pm::engine
