#include "controller/runtime/backoff.h"

#include <algorithm>

namespace pm::k8s {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds Base{800}, Cap{30'000};
constexpr std::chrono::minutes Healthy{2};

}  // namespace

milliseconds exponential(milliseconds base, int n, milliseconds cap) {
  for (milliseconds delay = base;; delay *= 2) {
    if (delay >= cap) return cap;
    if (n-- <= 0) return delay;
  }
}

milliseconds WatchBackoff::next(Clock::Steady now) {
  if (last_ && now - *last_ > Healthy) failures_ = 0;
  const milliseconds delay = exponential(Base, failures_++, Cap);
  const auto stretched = delay + milliseconds(static_cast<int64_t>(uniform_() * static_cast<double>(delay.count())));
  last_ = now + stretched;   // the wait itself is no sign of health
  return stretched;
}

}  // namespace pm::k8s
