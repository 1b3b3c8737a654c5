// Threads for loops of a few microseconds: too short for waking threads each time, too long for one of them.
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace pm::ops {

/// The thread that makes it and workers of its own, which share out loops chunk by chunk: who is held up by other load takes fewer. Between
/// loops workers spin for some tens of microseconds, which is longer than one step pauses between two products, and then sleep on a futex.
class Team {
 public:
  /// Starts `threads` - 1 workers.
  explicit Team(int threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls body(i) once for each i of 0 .. chunks - 1, on any thread in any order, and returns when all have returned; what they wrote is seen
  /// then. 0 <= chunks < 2^32. `body` must not throw and not come back here. Only the thread that made the team may call.
  template <typename Body>
  void each(int64_t chunks, Body&& body) {
    if (workers_.empty() || chunks <= 1) {
      for (int64_t i = 0; i < chunks; ++i) body(i);
      return;
    }
    using Plain = std::remove_reference_t<Body>;
    share({[](const void* what, int64_t chunk) { (*static_cast<Plain*>(const_cast<void*>(what)))(chunk); }, &body, chunks});
  }

 private:
  struct Loop {
    void (*call)(const void* body, int64_t chunk) = nullptr;
    const void* body = nullptr;
    int64_t chunks = 0;
  };
  void share(const Loop&);
  void work();
  bool run_one();

  Loop loop_;   // written by the caller while no chunk is left; read by who has taken one
  alignas(64) std::atomic<uint64_t> left_{0};       ///< number of the loop in the upper half, chunks that nobody has taken in the lower
  alignas(64) std::atomic<uint32_t> unfinished_{0};
  alignas(64) std::atomic<uint32_t> bell_{0};       ///< what sleepers watch
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

/// The calling thread's team, of as many threads as at::get_num_threads() tells this thread; made at the first call and when that number changes.
Team& team();

}  // namespace pm::ops
