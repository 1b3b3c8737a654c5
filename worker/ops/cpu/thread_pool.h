// SPDX-License-Identifier: Apache-2.0
// A thread pool for loops of a few microseconds, which are too short to wake threads for each and too long for a single
// thread.
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace pm::ops {

/// The thread that creates the pool and its workers share loops chunk by chunk, so that a thread slowed by other load
/// takes fewer chunks. Between loops workers spin for some tens of microseconds, longer than the pause between two
/// products of a step, and then sleep on a futex.
class ThreadPool {
 public:
  /// Starts `threads` - 1 workers.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls body(i) once for each i of 0 .. chunks - 1, on any thread in any order, and returns when all calls have
  /// returned; their writes are visible then. 0 <= chunks < 2^32. `body` must neither throw nor call the pool. Only the
  /// thread that created the pool may call.
  template <typename Body>
  void parallel_for(int64_t chunks, Body&& body) {
    if (workers_.empty() || chunks <= 1) {
      for (int64_t i = 0; i < chunks; ++i) body(i);
      return;
    }
    using Plain = std::remove_reference_t<Body>;
    run_loop({[](const void* what, int64_t chunk) { (*static_cast<Plain*>(const_cast<void*>(what)))(chunk); }, &body,
              chunks});
  }

 private:
  struct Loop {
    void (*call)(const void* body, int64_t chunk) = nullptr;
    const void* body = nullptr;
    int64_t chunks = 0;
  };
  void run_loop(const Loop&);
  void worker_loop();
  bool run_one();

  Loop loop_;  // written by the caller while no chunk is left; read by threads that have taken one
  alignas(64) std::atomic<uint64_t> left_{0};  ///< upper half: number of the loop; lower half: chunks not yet taken
  alignas(64) std::atomic<uint32_t> unfinished_{0};
  alignas(64) std::atomic<uint32_t> epoch_{0};  ///< sleeping workers wait for it to change
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

/// Returns the calling thread's pool of at::get_num_threads() threads; it is created at the first call and replaced
/// when that number changes.
ThreadPool& thread_pool();

}  // namespace pm::ops
