// SPDX-License-Identifier: Apache-2.0
// The back-off of watches, and exponential delays. Pure functions of time and random numbers.
#pragma once
#include <chrono>
#include <functional>
#include <optional>

#include "controller/core/clock.h"

namespace pm::k8s {

/// Returns a random number in [0, 1); a parameter, so that tests are deterministic.
using Uniform = std::function<double()>;

/// Returns base x 2^n, at most cap.
std::chrono::milliseconds exponential_delay(std::chrono::milliseconds base, int n, std::chrono::milliseconds cap);

/// The back-off of a failing watch: 0.8 s x 2^n up to 30 s, with a jitter of up to 100 %. It is reset when there was no
/// failure for two minutes. Source: client-go tools/cache/reflector.go.
class WatchBackoff {
 public:
  explicit WatchBackoff(Uniform uniform) : uniform_(std::move(uniform)) {}
  std::chrono::milliseconds next(Clock::Steady now);

 private:
  Uniform uniform_;
  int failures_ = 0;
  std::optional<Clock::Steady> last_;
};

}  // namespace pm::k8s
