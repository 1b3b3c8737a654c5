// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/speculation/draft_length.h"

#include <algorithm>
#include <utility>

namespace pm::engine {

namespace {

constexpr double newest = 0.2;  // weight of the latest draft in the estimate of the rate

}  // namespace

double draft_gain(double rate, int64_t count, const DraftPrice& price) {
  double gain = -price.step, all_accepted = 1;
  for (int64_t i = 0; i < count; ++i) gain += (all_accepted *= rate) - price.row;
  return gain;
}

int64_t best_draft_length(double rate, int64_t most, const DraftPrice& price) {
  int64_t best = 1;
  for (double all_accepted = rate * rate; best < most && all_accepted > price.row; all_accepted *= rate) ++best;
  return best;
}

int64_t DraftLength::next(int64_t most, const DraftPrice& price) {
  if (most < 1) return 0;
  if (pause_ > 0) {
    --pause_;
    return 0;
  }
  const int64_t best = best_draft_length(rate_, most, price);
  if (!std::exchange(began_, true) && draft_gain(rate_, best, price) <= 0) {
    pause();
    return 0;
  }
  return best;
}

void DraftLength::pause() {
  pause_ = next_pause_;
  next_pause_ = std::min(2 * next_pause_, longest_pause);
}

bool DraftLength::observe(int64_t drafted, int64_t accepted, int64_t most, const DraftPrice& price) {
  for (int64_t i = 0; i < accepted; ++i) rate_ += (1 - rate_) * newest;
  if (accepted < drafted) rate_ -= rate_ * newest;  // drafts behind the first rejected one tell nothing
  if (draft_gain(rate_, best_draft_length(rate_, most, price), price) > 0) {
    next_pause_ = first_pause;
    return false;
  }
  pause();
  return true;
}

}  // namespace pm::engine
