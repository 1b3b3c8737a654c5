// The ranks of one lane as rank 0's process sees them: step messages go out, results come back in the same order. Stages of a pipeline work on
// several messages at once.
#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "worker/comm/channel.h"
#include "worker/engine/rank.h"

namespace pm::engine {

using Channels = std::vector<std::shared_ptr<comm::Channel>>;

/// One thread sends and takes.
class Lane {
 public:
  virtual ~Lane() = default;
  /// Messages that may be under way at once: enough to keep every stage at work.
  virtual int depth() const = 0;
  /// Sends a message to every rank of the lane; when rank 0 is one of them, its share is done on return. Throws Error{RankLost}.
  virtual void send(const StepMessage&) = 0;
  /// What became of the oldest message that has been sent and not taken; waits for it. Throws Error{RankLost} when the deadline passes.
  virtual StepOutput take() = 0;
  /// Says that no message follows until there is new work: other lanes of the same clock need not wait for one. All that was sent has been taken.
  virtual void rest() {}
  /// Whether rank 0 is its only rank: a step that fails leaves no other in the midst of it.
  virtual bool alone() const { return false; }
  /// Rank 0's, which checks inputs for all lanes.
  virtual parallel::Executor& executor() = 0;
};

/// A lane of one stage with rank 0 in it: what rank 0 computes is the result.
class DirectLane final : public Lane {
 public:
  DirectLane(Rank& rank, Channels followers) : rank_(rank), followers_(std::move(followers)) {}
  int depth() const override { return 1; }
  void send(const StepMessage&) override;
  StepOutput take() override { return std::move(output_); }
  bool alone() const override { return followers_.empty(); }
  parallel::Executor& executor() override { return rank_.executor(); }

 private:
  Rank& rank_;
  Channels followers_;
  StepOutput output_;
};

/// A lane whose results come from another rank. Nothing waits in a circle: a thread of the lane takes results off their channel whatever the sender is doing, so
/// the last stage never waits for long; hence no stage waits for the next for long, and the followers take their messages.
class RemoteLane final : public Lane {
 public:
  /// `own`: rank 0 when it is of this lane, else nullptr. `results`: from tensor rank 0 of the last stage. `deadline`: of a step.
  RemoteLane(Rank& rank0, bool own, Channels followers, std::shared_ptr<comm::Channel> results, int stages, std::chrono::milliseconds deadline);
  ~RemoteLane() override;
  int depth() const override { return stages_ + 1; }   // one waits at the first stage
  void send(const StepMessage&) override;
  StepOutput take() override;
  parallel::Executor& executor() override { return rank0_.executor(); }

 private:
  void receive();
  Rank& rank0_;
  const bool own_;
  const Channels followers_;
  const std::shared_ptr<comm::Channel> results_;
  const int stages_;
  const std::chrono::milliseconds deadline_;
  std::mutex mutex_;                   ///< guards all below
  std::condition_variable arrived_;
  std::deque<StepOutput> outputs_;
  std::exception_ptr failure_;
  bool leaving_ = false;
  std::thread receiver_;
};

}  // namespace pm::engine
