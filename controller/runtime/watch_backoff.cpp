// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/watch_backoff.h"

#include <algorithm>

namespace pm::k8s {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds base_delay{800}, max_delay{30'000};
constexpr std::chrono::minutes healthy_after{2};

}  // namespace

milliseconds exponential_delay(milliseconds base, int n, milliseconds cap) {
  for (milliseconds delay = base;; delay *= 2) {
    if (delay >= cap) return cap;
    if (n-- <= 0) return delay;
  }
}

milliseconds WatchBackoff::next(Clock::Steady now) {
  if (last_ && now - *last_ > healthy_after) failures_ = 0;
  const milliseconds delay = exponential_delay(base_delay, failures_++, max_delay);
  const auto stretched = delay + milliseconds(static_cast<int64_t>(uniform_() * static_cast<double>(delay.count())));
  last_ = now + stretched;  // the wait itself does not count as healthy time
  return stretched;
}

}  // namespace pm::k8s
