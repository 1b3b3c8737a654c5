// The scheduler of one lane, in rank 0's process: the thread that sends step messages and takes their results, as many at once as the lane has work for.
#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "worker/engine/batcher.h"
#include "worker/engine/lane.h"
#include "worker/engine/passes.h"
#include "worker/engine/request.h"

namespace pm::engine {

/// Who is told of steps; called on the scheduler's thread, must not block. Empty ones are left out.
struct Observer {
  std::function<void(int64_t step, int64_t open)> after_step;   ///< the step's number, and how many requests are open
  std::function<void(const StepTimes&)> times;                  ///< of steps that did something
};

class Scheduler final : public Engine {
 public:
  /// Owns the thread that steps `lane`, which stays usable afterwards. `clock` tells what max_time and the figures are measured by.
  Scheduler(Lane& lane, Limits, Observer = {}, std::function<Time()> clock = std::chrono::steady_clock::now);
  /// A lane of one stage.
  Scheduler(Rank& rank, Channels followers, Limits, Observer = {}, std::function<Time()> clock = std::chrono::steady_clock::now);
  /// Ends open requests as cancelled, joins.
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
  /// A message that the ranks work on.
  struct Flight {
    StepMessage message;
    std::vector<Choosing> choosing;
    std::vector<PassPart> parts;
    StepTimes times;
    Time begin;
  };

  Scheduler(std::unique_ptr<Lane>, Limits, Observer, std::function<Time()>);
  void loop();
  void step();
  bool launch();
  bool launch_tokens();
  bool launch_pass();
  void launch_beat();
  void start(Flight);
  void land();
  void observe(StepTimes, Time begin);
  void drop_cancelled();
  void refuse_when_full();
  void give_back_slots();
  void fail_all(const std::string& reason);
  int64_t open() const;

  std::unique_ptr<Lane> own_lane_;
  Lane& lane_;
  const Limits limits_;
  const Observer observer_;
  const std::function<Time()> clock_;
  std::optional<Time> last_end_;           ///< of the step before, when work was left open; the loop's own
  bool pass_next_ = false;                 ///< neither kind of request waits for all of the other

  mutable std::mutex mutex_;               ///< guards all below; not held while a step runs or an event is delivered
  std::condition_variable wake_;
  Batcher batcher_;
  Passes passes_;
  std::deque<Flight> flights_;             ///< changed by the loop only
  int64_t rejected_ = 0, steps_ = 0;
  std::string failure_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace pm::engine
