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

/// How long a wait may spin when `waiters` threads share this process's CPUs: never long enough that a peer without a CPU suffers.
std::chrono::nanoseconds spin_budget(int waiters);

/// Now plus `timeout`; timeouts too long for the clock mean for ever.
inline Clock::time_point after(std::chrono::milliseconds timeout) {
  return timeout > std::chrono::hours(24 * 365) ? Clock::time_point::max() : Clock::now() + timeout;
}

/// Waits until done() or the deadline; false when the deadline passed. Whoever makes done() true calls knock(door) or alarm(door).
template <class Done>
bool wait(Door& door, std::chrono::nanoseconds spin, Clock::time_point deadline, Done&& done) {
  if (done()) return true;
  const auto sleep_from = Clock::now() + spin;
  do {
    for (int i = 0; i < 16; ++i) {
      if (done()) return true;
      relax();
    }
  } while (Clock::now() < sleep_from);
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
