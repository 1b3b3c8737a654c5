// How many of something are in progress, and a wait for none.
#pragma once
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

namespace pm::server {

/// Must outlive what it counts.
class OpenCount {
 public:
  /// Counts one more until the result and its copies are gone.
  std::shared_ptr<void> enter() {
    std::lock_guard lock(mutex_);
    ++count_;
    return {this, [](void* self) { static_cast<OpenCount*>(self)->leave(); }};
  }
  /// True when there was none within `limit`.
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
