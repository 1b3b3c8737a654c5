// SPDX-License-Identifier: Apache-2.0
// A thread pool for connections, with a limit on threads and on queued jobs. Threads are created when all others are
// busy.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace pm::server {

class ThreadPool {
 public:
  ThreadPool(size_t threads, size_t waiting) : max_threads_(threads), max_waiting_(waiting) {}
  ~ThreadPool() { shutdown(); }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  /// Queues `job`. Returns false, and does not run it, if every thread is busy and the queue is full.
  bool enqueue(std::function<void()> job);
  /// Counts the queued jobs that wait for a thread.
  size_t waiting() const;
  /// Runs the queued jobs, then joins the threads.
  void shutdown();

 private:
  void work();

  const size_t max_threads_, max_waiting_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  std::vector<std::thread> threads_;
  size_t idle_ = 0;
  bool stopping_ = false;
};

}  // namespace pm::server
