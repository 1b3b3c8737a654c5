// SPDX-License-Identifier: Apache-2.0
// Client-side rate limit of requests, a protection against defects of this process. The API server limits its load
// itself (429 with Retry-After).
#pragma once
#include <chrono>
#include <mutex>

#include "controller/core/clock.h"

namespace pm::k8s {

struct RateLimit {
  double qps = 500;     ///< requests per second on the long run; 0: no limit
  double burst = 1000;  ///< requests at once after a pause, at least 1
};

/// A token bucket that lets requests through in the order in which they came. Thread-safe.
class RateLimiter {
 public:
  explicit RateLimiter(RateLimit limit) : limit_(limit), tokens_(limit.burst) {}

  /// Takes a token, now or in advance; the caller sends its request after this time.
  Clock::Steady::duration reserve(Clock::Steady now);

 private:
  const RateLimit limit_;
  std::mutex mutex_;
  double tokens_;           ///< below 0: as many requests wait
  Clock::Steady filled_{};  ///< when tokens_ was right
};

}  // namespace pm::k8s
