// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/ranks/dp_rank.h"

#include "worker/base/error.h"

namespace pm::engine {

namespace {

void send_to_followers(const Channels& followers, const StepMessage& message) {
  if (followers.empty()) return;
  const std::vector<uint8_t> bytes = encode(message);
  for (const auto& follower : followers) follower->send(bytes);
}

}  // namespace

void DirectDpRank::send(const StepMessage& message) {
  send_to_followers(followers_, message);
  output_ = rank_.run(message);
}

RemoteDpRank::RemoteDpRank(Rank& rank0, bool includes_rank0, Channels followers, std::shared_ptr<comm::Channel> results,
                           int stages, std::chrono::milliseconds deadline)
    : rank0_(rank0),
      includes_rank0_(includes_rank0),
      followers_(std::move(followers)),
      results_(std::move(results)),
      stages_(stages),
      deadline_(deadline) {
  receiver_ = std::thread([this] { receive(); });
}

RemoteDpRank::~RemoteDpRank() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  receiver_.join();
}

void RemoteDpRank::receive() {
  constexpr auto look_up = std::chrono::milliseconds(50);  // upper bound of the time that the destructor waits
  try {
    for (;;) {
      const auto bytes = results_->receive(look_up);
      std::lock_guard lock(mutex_);
      if (stopping_) return;
      if (!bytes) continue;
      outputs_.push_back(decode_output(*bytes));
      arrived_.notify_one();
    }
  } catch (...) {
    std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    arrived_.notify_one();
  }
}

void RemoteDpRank::send(const StepMessage& message) {
  send_to_followers(followers_, message);
  if (includes_rank0_) rank0_.run(message);
}

StepOutput RemoteDpRank::take() {
  std::unique_lock lock(mutex_);
  const bool came = arrived_.wait_for(lock, deadline_, [this] { return !outputs_.empty() || failure_; });
  if (!outputs_.empty()) {
    StepOutput output = std::move(outputs_.front());
    outputs_.pop_front();
    return output;
  }
  if (came) std::rethrow_exception(failure_);
  throw Error(Reason::RankLost, "no step result within " + std::to_string(deadline_.count()) + " ms");
}

}  // namespace pm::engine
