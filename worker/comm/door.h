// How one thread waits for another, in one process or across processes: a brief spin, then sleep on a futex until a deadline.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>

namespace pm::comm {

using Clock = std::chrono::steady_clock;

/// Where waiters of one side sleep. All-zero is a valid fresh door, also in memory shared between processes.
struct alignas(64) Door {
  std::atomic<uint32_t> bell{0};       ///< the futex word; every alarm changes it
  std::atomic<uint32_t> sleepers{0};
};

/// Sleeps while `word` holds `expected`, at most until `deadline` (Clock::time_point::max() = for ever). May return early.
void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, Clock::time_point deadline);
void futex_wake_all(std::atomic<uint32_t>& word);

/// Wakes everybody at the door, sleeping or about to.
void alarm(Door& door);

/// Wakes sleepers, if any, after the caller has made true what they wait for.
inline void knock(Door& door) {
  std::atomic_thread_fence(std::memory_order_seq_cst);   // pairs with the increment of `sleepers` in wait()
  if (door.sleepers.load(std::memory_order_relaxed) != 0) alarm(door);
}

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

/// How long one waiter spins before it sleeps. Spinning pays only while the peer runs on another CPU, so a waiter whose spins keep
/// ending in sleep (the ranks share a CPU, or the peer is far behind) gives it up, and tries again now and then.
class Spin {
 public:
  /// For a waiter among `waiters` threads that share this process's CPUs.
  explicit Spin(int waiters);
  std::chrono::nanoseconds budget() {
    if (misses_ < patience) return longest_;
    return ++waits_ % retry_every == 0 ? longest_ : shortest;
  }
  /// Tells how a wait with that budget ended.
  void learn(std::chrono::nanoseconds budget, bool slept) {
    if (slept) misses_ += misses_ < patience;
    else if (budget == longest_) misses_ = 0;
  }

 private:
  static constexpr std::chrono::nanoseconds shortest{1'000};
  static constexpr int patience = 4;
  static constexpr unsigned retry_every = 16;
  std::chrono::nanoseconds longest_;
  int misses_ = 0;
  unsigned waits_ = 0;
};

/// Now plus `timeout`; timeouts too long for the clock mean for ever.
inline Clock::time_point after(std::chrono::milliseconds timeout) {
  return timeout > std::chrono::hours(24 * 365) ? Clock::time_point::max() : Clock::now() + timeout;
}

/// Waits until done() or the deadline; false when the deadline passed. Whoever makes done() true calls knock(door) or alarm(door).
template <class Done>
bool wait(Door& door, Spin& spin, Clock::time_point deadline, Done&& done) {
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
    const uint32_t seen = door.bell.load();
    door.sleepers.fetch_add(1);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const bool before = done();
    if (!before) futex_wait(door.bell, seen, deadline);
    door.sleepers.fetch_sub(1);
    if (before || done()) return true;
    if (Clock::now() >= deadline) return false;
  }
}

}  // namespace pm::comm
