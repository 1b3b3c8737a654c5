// SPDX-License-Identifier: Apache-2.0
#include "worker/comm/wait/event_count.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

#include "worker/comm/wait/cpus.h"

namespace pm::comm {

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, Clock::time_point deadline) {
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) && std::atomic<uint32_t>::is_always_lock_free);
  timespec until{};
  const bool bounded = deadline != Clock::time_point::max();
  if (bounded) {  // steady_clock is CLOCK_MONOTONIC, the clock of FUTEX_WAIT_BITSET's absolute timeout
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.time_since_epoch()).count();
    until = {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  }
  syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, expected, bounded ? &until : nullptr, nullptr, FUTEX_BITSET_MATCH_ANY);
}

void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void notify_all(EventCount& event) {
  event.epoch.fetch_add(1);
  futex_wake_all(event.epoch);
}

Spin::Spin(int waiters) : longest_(available_cpus() >= waiters ? std::chrono::microseconds(20) : shortest) {}

}  // namespace pm::comm
