// SPDX-License-Identifier: Apache-2.0
// Implements the channel between threads as a bounded queue.
#include <condition_variable>
#include <deque>
#include <mutex>

#include "worker/base/error.h"
#include "worker/comm/channel.h"
#include "worker/comm/wait/event_count.h"

namespace pm::comm {
namespace {

constexpr size_t capacity = 1 << 20;  // bytes queued before send() waits, as in the shared-memory ring; one longer
                                      // message is accepted when the queue is empty

class InProcessChannel final : public Channel {
 public:
  explicit InProcessChannel(std::chrono::milliseconds deadline) : deadline_(deadline) {}

  void send(std::span<const uint8_t> message) override {
    std::unique_lock lock(mutex_);
    const auto has_capacity = [&] { return aborted_ || queue_.empty() || bytes_ + message.size() <= capacity; };
    if (!wait_until(lock, drained_, after(deadline_), has_capacity))
      throw Error(Reason::CommunicatorAborted, "channel send waited " + std::to_string(deadline_.count()) +
                                                   " ms for the follower to drain " + std::to_string(bytes_) +
                                                   " bytes");
    check("send");
    queue_.emplace_back(message.begin(), message.end());
    bytes_ += message.size();
    lock.unlock();
    filled_.notify_one();
  }

  std::optional<std::vector<uint8_t>> receive(std::chrono::milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    if (!wait_until(lock, filled_, after(timeout), [&] { return aborted_ || !queue_.empty(); })) return std::nullopt;
    check("receive");
    std::vector<uint8_t> message = std::move(queue_.front());
    queue_.pop_front();
    bytes_ -= message.size();
    lock.unlock();
    drained_.notify_one();
    return message;
  }

  void abort(const std::string& reason) override {
    {
      const std::lock_guard lock(mutex_);
      if (!aborted_) reason_ = reason;
      aborted_ = true;
    }
    filled_.notify_all();
    drained_.notify_all();
  }

 private:
  template <class Done>
  static bool wait_until(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
                         Clock::time_point deadline, Done done) {
    if (deadline != Clock::time_point::max()) return changed.wait_until(lock, deadline, done);
    changed.wait(lock, done);
    return true;
  }
  void check(const char* what) const {
    if (aborted_) throw Error(Reason::CommunicatorAborted, std::string("channel ") + what + ": aborted: " + reason_);
  }

  const std::chrono::milliseconds deadline_;
  std::mutex mutex_;
  std::condition_variable filled_, drained_;
  std::deque<std::vector<uint8_t>> queue_;
  size_t bytes_ = 0;
  bool aborted_ = false;
  std::string reason_;
};

}  // namespace

std::shared_ptr<Channel> in_process_channel(std::chrono::milliseconds deadline) {
  return std::make_shared<InProcessChannel>(deadline);
}

}  // namespace pm::comm
