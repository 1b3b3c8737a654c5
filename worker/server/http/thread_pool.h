// Threads for connections: made when all others are busy, up to a limit; behind them a queue with a limit.
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
  /// False when every thread is busy and the queue is full: then `job` is not run.
  bool enqueue(std::function<void()> job);
  /// Runs what is queued, then joins.
  void shutdown();

 private:
  void work();

  const size_t max_threads_, max_waiting_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  std::vector<std::thread> threads_;
  size_t idle_ = 0;
  bool stopping_ = false;
};

}  // namespace pm::server
