// SPDX-License-Identifier: Apache-2.0
#include "worker/server/http/thread_pool.h"

#include <system_error>

namespace pm::server {

bool ThreadPool::enqueue(std::function<void()> job) {
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return false;
    if (idle_ <= jobs_.size() && threads_.size() < max_threads_) {
      try {
        threads_.emplace_back([this] { work(); });
        ++idle_;  // counts as idle until it takes its first job
      } catch (const std::system_error&) {
        if (threads_.empty())
          return false;  // the host allows no thread at all; otherwise the job waits for an existing one
      }
    }
    if (jobs_.size() >= idle_ + max_waiting_) return false;
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
  return true;
}

size_t ThreadPool::waiting() const {
  const std::lock_guard lock(mutex_);
  return jobs_.size() > idle_ ? jobs_.size() - idle_ : 0;
}

void ThreadPool::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    auto job = std::move(jobs_.front());
    jobs_.pop_front();
    --idle_;
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
    ++idle_;
  }
}

void ThreadPool::shutdown() {
  std::vector<std::thread> threads;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    threads.swap(threads_);
  }
  wake_.notify_all();
  for (auto& thread : threads) thread.join();
}

}  // namespace pm::server
