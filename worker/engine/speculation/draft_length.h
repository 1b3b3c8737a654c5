// SPDX-License-Identifier: Apache-2.0
// Decides how many tokens are drafted for a sequence, and pauses where drafts do not pay.
#pragma once
#include <cstdint>

namespace pm::engine {

/// What drafts cost, in tokens: a cost of 1 is the time in which the steps without drafts make one token.
struct DraftPrice {
  double row = 0.25;  ///< of the row of each draft
  double step = 0;  ///< a sequence's share of what a step costs because it has drafts at all: it replays no CUDA graph
};

/// Expected tokens that `count` drafts save, less their cost. A draft counts when all before it are accepted too, each
/// with probability `rate`.
double draft_gain(double rate, int64_t count, const DraftPrice&);
/// Returns the number of drafts, from 1 to `most`, of the largest gain.
int64_t best_draft_length(double rate, int64_t most, const DraftPrice&);

/// The drafts of one sequence. Copied with the sequence when it forks.
class DraftLength {
 public:
  static constexpr double optimistic_rate = 0.8;  ///< of a sequence of which nothing is known, so that it tries
  /// Begins with the rate of other sequences, in part: what a drafter guesses right depends on the texts, and on
  /// itself.
  void begin(double rate_of_others) { rate_ = (optimistic_rate + rate_of_others) / 2; }
  /// Returns how many tokens to draft in the next step of the sequence, at most `most`; 0 during a pause. A pause ends
  /// after some steps, with one trial. A sequence that is not expected to gain begins with a pause.
  int64_t next(int64_t most, const DraftPrice&);
  /// Learns that `accepted` of `drafted` tokens were accepted, where the step could have accepted all. Returns true if
  /// the sequence pauses now.
  bool observe(int64_t drafted, int64_t accepted, int64_t most, const DraftPrice&);
  /// Estimated probability that a draft is accepted when those before it are.
  double rate() const { return rate_; }

 private:
  static constexpr int64_t first_pause = 8, longest_pause = 512;
  void pause();
  double rate_ = optimistic_rate;
  bool began_ = false;
  int64_t pause_ = 0;                 ///< steps without drafts that are left
  int64_t next_pause_ = first_pause;  ///< doubles with every trial that fails
};

}  // namespace pm::engine
