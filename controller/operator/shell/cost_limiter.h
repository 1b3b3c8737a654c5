// SPDX-License-Identifier: Apache-2.0
// Declares a limiter for requests that are expensive for another service.
#pragma once
#include <algorithm>
#include <chrono>
#include <mutex>

#include "controller/core/clock.h"

namespace pm::op {

/// After each call, blocks the service for 19 times the duration of the call, and at least for `min_interval`. So the
/// service spends at most a twentieth of its time on us. Thread-safe.
class CostLimiter {
 public:
  explicit CostLimiter(const k8s::Clock& clock, std::chrono::milliseconds min_interval = std::chrono::milliseconds(200))
      : clock_(clock), min_interval_(min_interval) {}

  /// Returns true when no call is running and the pause has passed.
  bool allows() const {
    const std::lock_guard lock(mutex_);
    return users_ == 0 && clock_.now() >= free_from_;
  }
  /// Runs the call. Several threads may run one at once when allows() returned true to all of them.
  template <class Act>
  auto run(Act act) {
    const Use use(*this);
    return act();
  }

 private:
  struct Use {
    explicit Use(CostLimiter& all) : limiter(all), begin(all.clock_.now()) {
      const std::lock_guard lock(all.mutex_);
      ++all.users_;
    }
    ~Use() {
      const std::lock_guard lock(limiter.mutex_);
      --limiter.users_;
      const auto end = limiter.clock_.now();
      limiter.free_from_ = std::max(
          limiter.free_from_, end + std::max<k8s::Clock::Steady::duration>(19 * (end - begin), limiter.min_interval_));
    }
    CostLimiter& limiter;
    const k8s::Clock::Steady begin;
  };

  const k8s::Clock& clock_;
  const std::chrono::milliseconds min_interval_;
  mutable std::mutex mutex_;
  int users_ = 0;
  k8s::Clock::Steady free_from_{};
};

}  // namespace pm::op
