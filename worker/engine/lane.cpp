// See lane.h.
#include "worker/engine/lane.h"

#include "worker/base/error.h"

namespace pm::engine {

namespace {

void tell(const Channels& followers, const StepMessage& message) {
  if (followers.empty()) return;
  const std::vector<uint8_t> bytes = encode(message);
  for (const auto& follower : followers) follower->send(bytes);
}

}  // namespace

void DirectLane::send(const StepMessage& message) {
  tell(followers_, message);
  output_ = rank_.run(message);
}

RemoteLane::RemoteLane(Rank& rank0, bool own, Channels followers, std::shared_ptr<comm::Channel> results, int stages, std::chrono::milliseconds deadline)
    : rank0_(rank0), own_(own), followers_(std::move(followers)), results_(std::move(results)), stages_(stages), deadline_(deadline) {
  receiver_ = std::thread([this] { receive(); });
}

RemoteLane::~RemoteLane() {
  {
    std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  receiver_.join();
}

void RemoteLane::receive() {
  constexpr auto look_up = std::chrono::milliseconds(50);   // how long leaving takes at most
  try {
    for (;;) {
      const auto bytes = results_->receive(look_up);
      std::lock_guard lock(mutex_);
      if (leaving_) return;
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

void RemoteLane::send(const StepMessage& message) {
  tell(followers_, message);
  if (own_) rank0_.run(message);
}

StepOutput RemoteLane::take() {
  std::unique_lock lock(mutex_);
  const bool came = arrived_.wait_for(lock, deadline_, [this] { return !outputs_.empty() || failure_; });
  if (!outputs_.empty()) {
    StepOutput output = std::move(outputs_.front());
    outputs_.pop_front();
    return output;
  }
  if (came) std::rethrow_exception(failure_);
  throw Error(ErrorKind::RankLost, "RankLost", "no result of a step within " + std::to_string(deadline_.count()) + " ms");
}

}  // namespace pm::engine
