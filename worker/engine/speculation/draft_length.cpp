// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/speculation/draft_length.h"

#include <algorithm>

namespace pm::engine {

namespace {

constexpr double newest = 0.2;  // weight of the latest draft in the estimate of the rate

}  // namespace

double draft_gain(double rate, int64_t count, double row) {
  double gain = 0, all_accepted = 1;
  for (int64_t i = 0; i < count; ++i) gain += (all_accepted *= rate) - row;
  return gain;
}

int64_t best_draft_length(double rate, int64_t most, double row) {
  int64_t best = 1;
  for (double all_accepted = rate * rate; best < most && all_accepted > row; all_accepted *= rate) ++best;
  return best;
}

bool DraftLength::may_draft() {
  if (pause_ == 0) return true;
  --pause_;
  return false;
}

bool DraftLength::observe(int64_t drafted, int64_t accepted, int64_t most, double row) {
  for (int64_t i = 0; i < accepted; ++i) rate_ += (1 - rate_) * newest;
  if (accepted < drafted) rate_ -= rate_ * newest;  // drafts behind the first rejected one tell nothing
  if (draft_gain(rate_, best_draft_length(rate_, most, row), row) > 0) {
    next_pause_ = first_pause;
    return false;
  }
  pause_ = next_pause_;
  next_pause_ = std::min(2 * next_pause_, longest_pause);
  return true;
}

void DraftTrials::tried() {
  steps_ = 0;
  interval_ = std::min(2 * interval_, longest);
}

}  // namespace pm::engine
