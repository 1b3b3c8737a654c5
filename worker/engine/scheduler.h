// Rank 0's scheduler: the thread that steps the ranks, and the queue of passes beside the batcher's sequences.
#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "worker/comm/channel.h"
#include "worker/engine/batcher.h"
#include "worker/engine/rank.h"
#include "worker/engine/request.h"

namespace pm::engine {

/// Who is told of steps; called on the scheduler's thread, must not block. Empty ones are left out.
struct Observer {
  std::function<void(int64_t step, int64_t open)> after_step;   ///< the step's number, and how many requests are open
  std::function<void(const StepTimes&)> times;                  ///< of steps that did something
};

class Scheduler final : public Engine {
 public:
  /// Owns the thread that steps `rank` and feeds `followers`. `clock` tells what max_time and the figures are measured by.
  Scheduler(Rank& rank, std::vector<std::shared_ptr<comm::Channel>> followers, Limits, Observer = {}, std::function<Time()> clock = std::chrono::steady_clock::now);
  /// Ends open requests as cancelled, joins. The group stays usable.
  ~Scheduler() override;

  void submit(Request, std::function<void(const Event&)>) override;
  void forward(ForwardRequest, std::function<void(ForwardResult)>) override;
  void cancel(const std::string& id) override;
  Statistics statistics() const override;
  void fail(const std::string& reason) override;
  int64_t steps() const override;
  /// Why the engine stopped; empty while it runs.
  std::string failure() const;
  bool failed() const { return !failure().empty(); }

 private:
  /// A pass that waits, whole or from some row on.
  struct Pass {
    ForwardRequest request;
    std::function<void(ForwardResult)> on_done;
    int64_t rows = 0, rows_done = 0, rows_running = 0;
    Arrays outputs;                        ///< of the rows that are done
  };

  void loop();
  void run_step();
  bool run_pass(StepTimes&);
  std::vector<Pass> take_passes(int64_t& tokens);
  void finish_passes(std::vector<Pass>&, std::vector<Arrays> outputs);
  void observe(StepTimes, Time begin);
  void drop_cancelled();
  void refuse_when_full();
  StepResult run(const StepMessage&, std::span<const Choosing> choosing = {});
  void give_back_slots();
  void fail_all(const std::string& reason);
  int64_t open() const;

  Rank& rank_;
  std::vector<std::shared_ptr<comm::Channel>> followers_;
  const Limits limits_;
  const Observer observer_;
  const std::function<Time()> clock_;
  std::optional<Time> last_end_;           ///< of the step before, when work was left open; the loop's own

  mutable std::mutex mutex_;               ///< guards all below; not held while a step runs or an event is delivered
  std::condition_variable wake_;
  Batcher batcher_;
  std::deque<Pass> passes_;
  std::vector<Pass>* running_passes_ = nullptr;
  Statistics statistics_;                  ///< of steps and passes; the batcher counts the rest
  std::string failure_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace pm::engine
