// The engine over all lanes of a group: each has a scheduler with a queue, a batch and KV blocks of its own; a request goes to the one with the least to do.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "worker/engine/group.h"
#include "worker/engine/scheduler.h"

namespace pm::engine {

class Lanes final : public Engine {
 public:
  /// `limits`: of each lane. The observer hears of all lanes' steps as of one engine's: their number, and the requests open in all; from several threads,
  /// one at a time.
  Lanes(Group&, const Limits&, Observer = {});

  void submit(Request, std::function<void(const Event&)>) override;
  void forward(ForwardRequest, std::function<void(ForwardResult)>) override;
  void cancel(const std::string& id) override;
  Statistics statistics() const override;
  void fail(const std::string& reason) override;
  int64_t steps() const override;
  /// Why a lane stopped, and with it the engine; empty while all run.
  std::string failure() const;
  bool failed() const { return !failure().empty(); }

 private:
  Scheduler& least_loaded();
  Observer of_lane(size_t lane);
  const Observer observer_;
  std::mutex mutex_;                   ///< guards what the observer is told
  std::vector<int64_t> open_;          ///< requests of each lane
  int64_t steps_ = 0;
  std::vector<std::unique_ptr<Scheduler>> schedulers_;
};

}  // namespace pm::engine
