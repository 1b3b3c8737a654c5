// See clock.h.
#include "worker/engine/clock.h"

#include <algorithm>

#include "worker/base/error.h"

namespace pm::engine {

namespace {

/// Resting: no message comes. Thinking: one will. Sent: it waits for the others. Running: the ranks work on it. Done: its result waits to be taken.
enum class State { Resting, Thinking, Sent, Running, Done };

class Clock {
 public:
  Clock(Rank& rank0, Channels followers, Channels results, std::chrono::milliseconds deadline)
      : rank0_(rank0), followers_(std::move(followers)), results_(std::move(results)), deadline_(deadline), seats_(followers_.size() + 1) {
    thread_ = std::thread([this] { run(); });
  }
  ~Clock() {
    {
      std::lock_guard lock(mutex_);
      leaving_ = true;
    }
    moved_.notify_all();
    thread_.join();
  }

  void send(size_t lane, const StepMessage& message) {
    std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    seats_[lane].message = message;
    set(lane, State::Sent);
  }

  StepOutput take(size_t lane) {
    std::unique_lock lock(mutex_);
    moved_.wait(lock, [&] { return seats_[lane].state == State::Done || failure_; });
    if (seats_[lane].state != State::Done) std::rethrow_exception(failure_);
    set(lane, State::Thinking);
    return std::move(seats_[lane].output);
  }

  void rest(size_t lane) {
    std::lock_guard lock(mutex_);
    if (seats_[lane].state == State::Thinking) set(lane, State::Resting);
  }

  Rank& rank0() { return rank0_; }

 private:
  struct Seat {
    State state = State::Resting;
    StepMessage message;
    StepOutput output;
  };

  void set(size_t lane, State state) {
    seats_[lane].state = state;
    moved_.notify_all();
  }

  bool due() const {
    const auto is = [&](State state) { return [state](const Seat& seat) { return seat.state == state; }; };
    return std::any_of(seats_.begin(), seats_.end(), is(State::Sent)) && std::none_of(seats_.begin(), seats_.end(), is(State::Thinking)) &&
           std::none_of(seats_.begin(), seats_.end(), is(State::Done));
  }

  void run() {
    try {
      for (;;) {
        std::vector<StepMessage> messages(seats_.size());
        {
          std::unique_lock lock(mutex_);
          moved_.wait(lock, [&] { return leaving_ || due(); });
          if (leaving_) return;
          ++steps_;
          for (size_t lane = 0; lane < seats_.size(); ++lane) {
            if (seats_[lane].state == State::Sent) messages[lane] = std::move(seats_[lane].message), seats_[lane].state = State::Running;
            messages[lane].step = steps_;   // what followers say of their progress never goes back
          }
        }
        std::vector<StepOutput> outputs = step(messages);
        std::lock_guard lock(mutex_);
        for (size_t lane = 0; lane < seats_.size(); ++lane) {
          if (seats_[lane].state != State::Running) continue;
          seats_[lane].output = std::move(outputs[lane]);
          set(lane, State::Done);
        }
      }
    } catch (const std::exception& error) {
      rank0_.executor().communicator().abort(error.what());
      std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      moved_.notify_all();
    }
  }

  std::vector<StepOutput> step(const std::vector<StepMessage>& messages) {
    for (size_t rank = 1; rank < messages.size(); ++rank) followers_[rank - 1]->send(encode(messages[rank]));
    std::vector<StepOutput> outputs(messages.size());
    outputs[0] = rank0_.run(messages[0]);
    for (size_t rank = 1; rank < messages.size(); ++rank) {
      const auto bytes = results_[rank - 1]->receive(deadline_);
      if (!bytes) throw Error(ErrorKind::RankLost, "RankLost", "no result of a step from rank " + std::to_string(rank) + " within " + std::to_string(deadline_.count()) + " ms");
      outputs[rank] = decode_output(*bytes);
    }
    return outputs;
  }

  Rank& rank0_;
  const Channels followers_, results_;
  const std::chrono::milliseconds deadline_;
  std::mutex mutex_;                   ///< guards all below
  std::condition_variable moved_;
  std::vector<Seat> seats_;
  int64_t steps_ = 0;
  std::exception_ptr failure_;
  bool leaving_ = false;
  std::thread thread_;
};

class ClockedLane final : public Lane {
 public:
  ClockedLane(std::shared_ptr<Clock> clock, size_t number) : clock_(std::move(clock)), number_(number) {}
  int depth() const override { return 1; }
  void send(const StepMessage& message) override { clock_->send(number_, message); }
  StepOutput take() override { return clock_->take(number_); }
  void rest() override { clock_->rest(number_); }
  parallel::Executor& executor() override { return clock_->rank0().executor(); }

 private:
  const std::shared_ptr<Clock> clock_;
  const size_t number_;
};

}  // namespace

std::vector<std::unique_ptr<Lane>> lanes_of_one_clock(Rank& rank0, Channels followers, Channels results, std::chrono::milliseconds deadline) {
  const size_t lanes = followers.size() + 1;
  const auto clock = std::make_shared<Clock>(rank0, std::move(followers), std::move(results), deadline);
  std::vector<std::unique_ptr<Lane>> out;
  for (size_t lane = 0; lane < lanes; ++lane) out.push_back(std::make_unique<ClockedLane>(clock, lane));
  return out;
}

}  // namespace pm::engine
