// SPDX-License-Identifier: Apache-2.0
// The ranks of one data-parallel rank as the process of rank 0 sees them: step messages go out and results come back in
// the same order. A pipeline works on several messages at once.
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
#include "worker/engine/ranks/rank.h"

namespace pm::engine {

using Channels = std::vector<std::shared_ptr<comm::Channel>>;

/// A data-parallel rank. One thread calls send() and take().
class DpRank {
 public:
  virtual ~DpRank() = default;
  /// Number of messages that may be in flight: enough to keep every pipeline stage busy.
  virtual int max_in_flight() const = 0;
  /// Sends a message to every rank of this data-parallel rank. If rank 0 is one of them, it has run the step when this
  /// returns. Throws Error{RankLost}.
  virtual void send(const StepMessage&) = 0;
  /// Waits for the result of the oldest message in flight and returns it. Throws Error{RankLost} when the deadline
  /// passes.
  virtual StepOutput take() = 0;
  /// Declares that no message follows until there is new work, so that data-parallel ranks in lockstep do not wait for
  /// one. No message may be in flight.
  virtual void set_idle() {}
  /// Returns true if rank 0 is the only rank, so that a failed step leaves no other rank in the middle of one.
  virtual bool is_single_rank() const { return false; }
  /// The executor of rank 0, which validates inputs for all data-parallel ranks.
  virtual parallel::Executor& executor() = 0;
};

/// A data-parallel rank with one pipeline stage that includes rank 0, whose output is the result.
class DirectDpRank final : public DpRank {
 public:
  DirectDpRank(Rank& rank, Channels followers) : rank_(rank), followers_(std::move(followers)) {}
  int max_in_flight() const override { return 1; }
  void send(const StepMessage&) override;
  StepOutput take() override { return std::move(output_); }
  bool is_single_rank() const override { return followers_.empty(); }
  parallel::Executor& executor() override { return rank_.executor(); }

 private:
  Rank& rank_;
  Channels followers_;
  StepOutput output_;
};

/// A data-parallel rank whose results come from another rank. It cannot deadlock: a thread takes results off their
/// channel whatever the sender does. The last stage therefore never blocks for long, and neither do the stages before
/// it.
class RemoteDpRank final : public DpRank {
 public:
  /// `includes_rank0` says whether rank 0 belongs to this data-parallel rank. `results` is the channel from tensor rank
  /// 0 of the last stage. `deadline` applies to one step.
  RemoteDpRank(Rank& rank0, bool includes_rank0, Channels followers, std::shared_ptr<comm::Channel> results, int stages,
               std::chrono::milliseconds deadline);
  ~RemoteDpRank() override;
  int max_in_flight() const override { return stages_ + 1; }  // one more message waits at the first stage
  void send(const StepMessage&) override;
  StepOutput take() override;
  parallel::Executor& executor() override { return rank0_.executor(); }

 private:
  void receive();
  Rank& rank0_;
  const bool includes_rank0_;
  const Channels followers_;
  const std::shared_ptr<comm::Channel> results_;
  const int stages_;
  const std::chrono::milliseconds deadline_;
  std::mutex mutex_;  ///< guards all below
  std::condition_variable arrived_;
  std::deque<StepOutput> outputs_;
  std::exception_ptr failure_;
  bool stopping_ = false;
  std::thread receiver_;
};

}  // namespace pm::engine
