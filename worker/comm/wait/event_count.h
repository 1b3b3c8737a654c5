// SPDX-License-Identifier: Apache-2.0
// Lets one thread wait for another, in one process or across processes: a brief spin, then sleep on a futex until a
// deadline.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>

namespace pm::comm {

using Clock = std::chrono::steady_clock;

/// An event count (futex) at which waiters of one side sleep. All-zero is a valid fresh one, also in shared memory.
struct alignas(64) EventCount {
  std::atomic<uint32_t> epoch{0};  ///< the futex word; every notification changes it
  std::atomic<uint32_t> sleepers{0};
};

/// Sleeps while `word` holds `expected`, at most until `deadline` (Clock::time_point::max() = no limit). May return
/// early.
void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, Clock::time_point deadline);
void futex_wake_all(std::atomic<uint32_t>& word);

/// Wakes all waiters of the event count, asleep or about to sleep.
void notify_all(EventCount& event);

/// Wakes sleepers, if any. The caller has made their condition true before.
inline void notify(EventCount& event) {
  std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with the increment of `sleepers` in wait()
  if (event.sleepers.load(std::memory_order_relaxed) != 0) notify_all(event);
}

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

/// Decides how long one waiter spins before it sleeps. Spinning pays only while the peer runs on another CPU. A waiter
/// whose spins keep ending in sleep, because ranks share a CPU or the peer is far behind, stops spinning and tries
/// again now and then.
class Spin {
 public:
  /// Makes the spin of a waiter among `waiters` threads that share the CPUs of this process.
  explicit Spin(int waiters);
  std::chrono::nanoseconds budget() {
    if (misses_ < max_misses) return longest_;
    return ++waits_ % retry_every == 0 ? longest_ : shortest;
  }
  /// Records how a wait with that budget ended.
  void learn(std::chrono::nanoseconds budget, bool slept) {
    if (slept)
      misses_ += misses_ < max_misses;
    else if (budget == longest_)
      misses_ = 0;
  }

 private:
  static constexpr std::chrono::nanoseconds shortest{1'000};
  static constexpr int max_misses = 4;
  static constexpr unsigned retry_every = 16;
  std::chrono::nanoseconds longest_;
  int misses_ = 0;
  unsigned waits_ = 0;
};

/// Returns now plus `timeout`; timeouts too long for the clock mean no limit.
inline Clock::time_point after(std::chrono::milliseconds timeout) {
  return timeout > std::chrono::hours(24 * 365) ? Clock::time_point::max() : Clock::now() + timeout;
}

/// Waits until done() or the deadline; returns false when the deadline passed. Whoever makes done() true calls
/// notify(event) or notify_all(event).
template <class Done>
bool wait(EventCount& event, Spin& spin, Clock::time_point deadline, Done&& done) {
  if (done()) return true;
  const auto budget = spin.budget();
  const auto sleep_from = Clock::now() + budget;
  do {
    for (int i = 0; i < 16; ++i) {
      if (done()) {
        spin.learn(budget, false);
        return true;
      }
      relax();
    }
  } while (Clock::now() < sleep_from);
  spin.learn(budget, true);
  for (;;) {
    const uint32_t seen = event.epoch.load();
    event.sleepers.fetch_add(1);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const bool before = done();
    if (!before) futex_wait(event.epoch, seen, deadline);
    event.sleepers.fetch_sub(1);
    if (before || done()) return true;
    if (Clock::now() >= deadline) return false;
  }
}

}  // namespace pm::comm
