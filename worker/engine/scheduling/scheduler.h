// SPDX-License-Identifier: Apache-2.0
// The scheduler of one data-parallel rank in the process of rank 0: its thread sends step messages and applies their
// results, with as many steps in flight as the pipeline can hold.
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

#include "worker/engine/engine.h"
#include "worker/engine/ranks/dp_rank.h"
#include "worker/engine/scheduling/batcher.h"
#include "worker/engine/scheduling/forward_queue.h"
#include "worker/engine/scheduling/mask_thread.h"

namespace pm::engine {

/// Callbacks that report steps. They run on the scheduler's thread and must not block; empty ones are skipped.
struct Observer {
  std::function<void(int64_t step, int64_t open)> after_step;  ///< step number and number of open requests
  std::function<void(const StepTimes&)> times;                 ///< of steps with work
};

/// Continuous batching of generation and forward requests for one data-parallel rank. Thread-safe.
class Scheduler final : public Engine {
 public:
  /// Starts the thread that drives `dp_rank`, which stays usable after the scheduler ends. `clock` is the time source
  /// for max_time and for step times.
  Scheduler(DpRank& dp_rank, Limits, Observer = {}, std::function<Time()> clock = std::chrono::steady_clock::now);
  /// Drives a data-parallel rank with one pipeline stage.
  Scheduler(Rank& rank, Channels followers, Limits, Observer = {},
            std::function<Time()> clock = std::chrono::steady_clock::now);
  /// Cancels open requests and joins the thread.
  ~Scheduler() override;

  void submit(Request, std::function<void(const Event&)>) override;
  void forward(ForwardRequest, std::function<void(ForwardResult)>) override;
  void cancel(const std::string& id) override;
  Statistics statistics() const override;
  void load_adapter(int32_t slot, Arrays factors) override;
  void fail(const std::string& reason) override;
  int64_t steps() const override;
  /// Returns why the engine stopped; empty while it runs.
  std::string failure() const;
  bool failed() const { return !failure().empty(); }

 private:
  /// A step message whose results have not arrived.
  struct InFlightStep {
    StepMessage message;
    std::vector<SamplingInput> sampling_inputs;
    std::vector<ForwardPart> parts;
    StepTimes times;
    Time begin;
  };

  Scheduler(std::unique_ptr<DpRank>, Limits, Observer, std::function<Time()>);
  void loop();
  void step();
  bool launch();
  bool launch_adapters();
  bool launch_tokens();
  bool launch_forward();
  void send_heartbeat_step();
  void start(InFlightStep);
  void complete_step();
  void observe(StepTimes, Time begin);
  void drop_cancelled();
  void refuse_when_full();
  void release_slots();
  void fail_all(const std::string& reason);
  int64_t open() const;

  std::unique_ptr<DpRank> own_dp_rank_;
  DpRank& dp_rank_;
  const Limits limits_;
  const Observer observer_;
  const std::function<Time()> clock_;
  MaskThread masks_;
  std::optional<Time> last_end_;  ///< end of the previous step if requests were open then; used by the loop only
  bool forward_next_ = false;     ///< alternates between generation and forward requests, so that neither kind starves

  mutable std::mutex mutex_;  ///< guards all below; not held while a step runs or an event is delivered
  std::condition_variable wake_;
  Batcher batcher_;
  ForwardQueue forward_queue_;
  std::deque<InFlightStep> in_flight_;  ///< modified by the loop only
  int64_t rejected_ = 0, steps_ = 0;
  std::deque<AdapterLoad> adapter_loads_;  ///< that no message has yet
  int64_t adapters_requested_ = 0, adapters_loaded_ = 0;
  std::condition_variable adapter_loaded_;
  std::string failure_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace pm::engine
