// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/ranks/lockstep_barrier.h"

#include <algorithm>

#include "worker/base/error.h"

namespace pm::engine {

namespace {

/// State of a data-parallel rank. Idle: no message comes. Preparing: a message will come. Sent: the message waits for
/// those of the others. Running: the ranks run the step. Done: the result waits for take().
enum class State { Idle, Preparing, Sent, Running, Done };

class LockstepBarrier {
 public:
  LockstepBarrier(Rank& rank0, Channels followers, Channels results, std::chrono::milliseconds deadline)
      : rank0_(rank0),
        followers_(std::move(followers)),
        results_(std::move(results)),
        deadline_(deadline),
        slots_(followers_.size() + 1) {
    thread_ = std::thread([this] { run(); });
  }
  ~LockstepBarrier() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void send(size_t dp_rank, const StepMessage& message) {
    std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    slots_[dp_rank].message = message;
    set(dp_rank, State::Sent);
  }

  StepOutput take(size_t dp_rank) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return slots_[dp_rank].state == State::Done || failure_; });
    if (slots_[dp_rank].state != State::Done) std::rethrow_exception(failure_);
    set(dp_rank, State::Preparing);
    return std::move(slots_[dp_rank].output);
  }

  void set_idle(size_t dp_rank) {
    std::lock_guard lock(mutex_);
    if (slots_[dp_rank].state == State::Preparing) set(dp_rank, State::Idle);
  }

  Rank& rank0() { return rank0_; }

 private:
  struct Slot {
    State state = State::Idle;
    StepMessage message;
    StepOutput output;
  };

  void set(size_t dp_rank, State state) {
    slots_[dp_rank].state = state;
    changed_.notify_all();
  }

  bool due() const {
    const auto is = [&](State state) { return [state](const Slot& slot) { return slot.state == state; }; };
    return std::any_of(slots_.begin(), slots_.end(), is(State::Sent)) &&
           std::none_of(slots_.begin(), slots_.end(), is(State::Preparing)) &&
           std::none_of(slots_.begin(), slots_.end(), is(State::Done));
  }

  void run() {
    try {
      for (;;) {
        std::vector<StepMessage> messages(slots_.size());
        {
          std::unique_lock lock(mutex_);
          changed_.wait(lock, [&] { return stopping_ || due(); });
          if (stopping_) return;
          ++steps_;
          for (size_t dp_rank = 0; dp_rank < slots_.size(); ++dp_rank) {
            if (slots_[dp_rank].state == State::Sent)
              messages[dp_rank] = std::move(slots_[dp_rank].message), slots_[dp_rank].state = State::Running;
            messages[dp_rank].step = steps_;  // step numbers that followers report never decrease
          }
        }
        std::vector<StepOutput> outputs = step(messages);
        std::lock_guard lock(mutex_);
        for (size_t dp_rank = 0; dp_rank < slots_.size(); ++dp_rank) {
          if (slots_[dp_rank].state != State::Running) continue;
          slots_[dp_rank].output = std::move(outputs[dp_rank]);
          set(dp_rank, State::Done);
        }
      }
    } catch (const std::exception& error) {
      rank0_.executor().communicator().abort(error.what());
      std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      changed_.notify_all();
    }
  }

  std::vector<StepOutput> step(const std::vector<StepMessage>& messages) {
    for (size_t rank = 1; rank < messages.size(); ++rank) followers_[rank - 1]->send(encode(messages[rank]));
    std::vector<StepOutput> outputs(messages.size());
    outputs[0] = rank0_.run(messages[0]);
    for (size_t rank = 1; rank < messages.size(); ++rank) {
      const auto bytes = results_[rank - 1]->receive(deadline_);
      if (!bytes)
        throw Error(Reason::RankLost, "no step result from rank " + std::to_string(rank) + " within " +
                                          std::to_string(deadline_.count()) + " ms");
      outputs[rank] = decode_output(*bytes);
    }
    return outputs;
  }

  Rank& rank0_;
  const Channels followers_, results_;
  const std::chrono::milliseconds deadline_;
  std::mutex mutex_;  ///< guards all below
  std::condition_variable changed_;
  std::vector<Slot> slots_;
  int64_t steps_ = 0;
  std::exception_ptr failure_;
  bool stopping_ = false;
  std::thread thread_;
};

class LockstepDpRank final : public DpRank {
 public:
  LockstepDpRank(std::shared_ptr<LockstepBarrier> barrier, size_t number)
      : barrier_(std::move(barrier)), number_(number) {}
  int max_in_flight() const override { return 1; }
  void send(const StepMessage& message) override { barrier_->send(number_, message); }
  StepOutput take() override { return barrier_->take(number_); }
  void set_idle() override { barrier_->set_idle(number_); }
  parallel::Executor& executor() override { return barrier_->rank0().executor(); }

 private:
  const std::shared_ptr<LockstepBarrier> barrier_;
  const size_t number_;
};

}  // namespace

std::vector<std::unique_ptr<DpRank>> lockstep_dp_ranks(Rank& rank0, Channels followers, Channels results,
                                                       std::chrono::milliseconds deadline) {
  const size_t dp_ranks = followers.size() + 1;
  const auto barrier = std::make_shared<LockstepBarrier>(rank0, std::move(followers), std::move(results), deadline);
  std::vector<std::unique_ptr<DpRank>> out;
  for (size_t dp_rank = 0; dp_rank < dp_ranks; ++dp_rank)
    out.push_back(std::make_unique<LockstepDpRank>(barrier, dp_rank));
  return out;
}

}  // namespace pm::engine
