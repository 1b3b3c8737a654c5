// SPDX-License-Identifier: Apache-2.0
// Counts operations in progress and waits until there are none.
#pragma once
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

namespace pm::server {

/// A counter of operations in progress, which must outlive them.
class InFlightCounter {
 public:
  /// Counts one operation until the result and its copies are destroyed.
  std::shared_ptr<void> enter() {
    std::lock_guard lock(mutex_);
    ++count_;
    return {this, [](void* self) { static_cast<InFlightCounter*>(self)->leave(); }};
  }
  /// Waits until no operation is in progress. Returns false after `limit`.
  bool wait_until_none(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    return none_.wait_for(lock, limit, [this] { return count_ == 0; });
  }

 private:
  void leave() {
    std::lock_guard lock(mutex_);
    if (--count_ == 0) none_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable none_;
  int count_ = 0;
};

}  // namespace pm::server
