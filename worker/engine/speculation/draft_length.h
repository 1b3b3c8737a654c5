// SPDX-License-Identifier: Apache-2.0
// Decides how many tokens are drafted for a sequence, and pauses where drafts do not pay.
#pragma once
#include <cstdint>

namespace pm::engine {

/// What drafts cost, in tokens: a cost of 1 is the time in which the steps without drafts make one token.
struct DraftPrice {
  double row = 0.25;  ///< of the row of each draft
  double step = 0;    ///< of a step because it has drafts at all, however many sequences have some
};

/// Expected tokens that `count` drafts of a sequence save, less the cost of their rows. A draft counts when all before
/// it are accepted too, each with probability `rate`.
double draft_gain(double rate, int64_t count, double row);
/// Returns the number of drafts, from 1 to `most`, of the largest gain.
int64_t best_draft_length(double rate, int64_t most, double row);

/// The drafts of one sequence. Copied with the sequence when it forks.
class DraftLength {
 public:
  static constexpr double optimistic_rate = 0.8;  ///< of a sequence of which nothing is known, so that it tries
  /// Begins with the rate of other sequences, in part: what a drafter guesses right depends on the texts, and on
  /// itself.
  void begin(double rate_of_others) { rate_ = (optimistic_rate + rate_of_others) / 2; }
  /// Counts a step, and returns whether the sequence may draft in it: not during a pause.
  bool may_draft();
  /// Learns that `accepted` of `drafted` tokens were accepted, where the step could have accepted all. Returns true if
  /// the sequence pauses now, because its rows cost more than it is expected to save.
  bool observe(int64_t drafted, int64_t accepted, int64_t most, double row);
  /// Estimated probability that a draft is accepted when those before it are.
  double rate() const { return rate_; }

 private:
  static constexpr int64_t first_pause = 8, longest_pause = 512;
  double rate_ = optimistic_rate;
  int64_t pause_ = 0;                 ///< steps without drafts that are left
  int64_t next_pause_ = first_pause;  ///< doubles with every trial that fails
};

/// Decides which steps try whether drafts pay that are not expected to. Sequences try together: under load most of the
/// cost is that a step has drafts at all.
class DraftTrials {
 public:
  /// Counts a step, and returns whether it may try.
  bool next() { return ++steps_ >= interval_; }
  /// Learns that this step tries.
  void tried();
  /// Learns that the drafts of a step are expected to pay.
  void paid() { interval_ = shortest; }

 private:
  static constexpr int64_t shortest = 8, longest = 128;
  int64_t steps_ = 0;            ///< since the last one with a trial
  int64_t interval_ = shortest;  ///< doubles with every trial until one pays
};

}  // namespace pm::engine
