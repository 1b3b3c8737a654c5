// SPDX-License-Identifier: Apache-2.0
#include "controller/client/rate_limiter.h"

#include <algorithm>

namespace pm::k8s {

Clock::Steady::duration RateLimiter::reserve(Clock::Steady now) {
  if (limit_.qps <= 0) return {};
  using Seconds = std::chrono::duration<double>;
  const std::lock_guard lock(mutex_);
  if (now > filled_) {  // times of threads may arrive out of order
    tokens_ = std::min(limit_.burst, tokens_ + Seconds(now - filled_).count() * limit_.qps);
    filled_ = now;
  }
  tokens_ -= 1;
  return tokens_ >= 0 ? Clock::Steady::duration{}
                      : std::chrono::duration_cast<Clock::Steady::duration>(Seconds(-tokens_ / limit_.qps));
}

}  // namespace pm::k8s
