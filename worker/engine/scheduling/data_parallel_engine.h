// SPDX-License-Identifier: Apache-2.0
// The engine over all data-parallel ranks of a replica. Each data-parallel rank has its own scheduler, queue, batch and
// KV blocks; a request goes to the least loaded one.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "worker/engine/ranks/rank_group.h"
#include "worker/engine/scheduling/scheduler.h"

namespace pm::engine {

/// Distributes requests over the schedulers of the data-parallel ranks. Thread-safe.
class DataParallelEngine final : public Engine {
 public:
  /// `limits` apply to each data-parallel rank. The observer sees the steps of all ranks as those of one engine: total
  /// step count and total open requests. It is called from several threads, one at a time.
  DataParallelEngine(RankGroup&, const Limits&, Observer = {});

  void submit(Request, std::function<void(const Event&)>) override;
  void forward(ForwardRequest, std::function<void(ForwardResult)>) override;
  void cancel(const std::string& id) override;
  void load_adapter(int32_t slot, Arrays factors) override;
  Statistics statistics() const override;
  void fail(const std::string& reason) override;
  int64_t steps() const override;
  /// Returns why a data-parallel rank, and with it the engine, stopped; empty while all run.
  std::string failure() const;
  bool failed() const { return !failure().empty(); }

 private:
  Scheduler& least_loaded();
  Observer make_observer(size_t dp_rank);
  const Observer observer_;
  std::mutex mutex_;           ///< guards the observer and the counters below
  std::vector<int64_t> open_;  ///< open requests of each data-parallel rank
  int64_t steps_ = 0;
  std::vector<std::unique_ptr<Scheduler>> schedulers_;
};

}  // namespace pm::engine
