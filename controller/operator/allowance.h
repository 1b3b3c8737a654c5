// How often something may be done that costs others a lot.
#pragma once
#include <algorithm>
#include <chrono>
#include <mutex>

#include "controller/core/clock.h"

namespace pm::op {

/// Leaves an expensive service alone for nineteen times as long as it last took, and at least `least`: it spends a twentieth of its time on us. Thread-safe.
class Allowance {
 public:
  explicit Allowance(const k8s::Clock& clock, std::chrono::milliseconds least = std::chrono::milliseconds(200)) : clock_(clock), least_(least) {}

  /// Nobody is at it, and enough time has passed.
  bool free() const {
    const std::lock_guard lock(mutex_);
    return users_ == 0 && clock_.now() >= free_from_;
  }
  /// Does it; several may have seen at the same moment that it is free.
  template <class Act>
  auto spend(Act act) {
    const Use use(*this);
    return act();
  }

 private:
  struct Use {
    explicit Use(Allowance& all) : allowance(all), begin(all.clock_.now()) {
      const std::lock_guard lock(all.mutex_);
      ++all.users_;
    }
    ~Use() {
      const std::lock_guard lock(allowance.mutex_);
      --allowance.users_;
      const auto end = allowance.clock_.now();
      allowance.free_from_ = std::max(allowance.free_from_, end + std::max<k8s::Clock::Steady::duration>(19 * (end - begin), allowance.least_));
    }
    Allowance& allowance;
    const k8s::Clock::Steady begin;
  };

  const k8s::Clock& clock_;
  const std::chrono::milliseconds least_;
  mutable std::mutex mutex_;
  int users_ = 0;
  k8s::Clock::Steady free_from_{};
};

}  // namespace pm::op
