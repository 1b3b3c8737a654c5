// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/scheduling/data_parallel_engine.h"

#include <algorithm>

namespace pm::engine {

DataParallelEngine::DataParallelEngine(RankGroup& group, const Limits& limits, Observer observer)
    : observer_(std::move(observer)), open_(group.dp_ranks().size()) {
  for (size_t dp_rank = 0; dp_rank < open_.size(); ++dp_rank)
    schedulers_.push_back(std::make_unique<Scheduler>(*group.dp_ranks()[dp_rank], limits, make_observer(dp_rank)));
}

Observer DataParallelEngine::make_observer(size_t dp_rank) {
  Observer observer;
  if (observer_.times)
    observer.times = [this](const StepTimes& times) {
      std::lock_guard lock(mutex_);
      observer_.times(times);
    };
  if (observer_.after_step)
    observer.after_step = [this, dp_rank](int64_t, int64_t open) {
      std::lock_guard lock(mutex_);
      open_[dp_rank] = open;
      int64_t all = 0;
      for (const int64_t one : open_) all += one;
      observer_.after_step(++steps_, all);
    };
  return observer;
}

Scheduler& DataParallelEngine::least_loaded() {
  if (schedulers_.size() == 1) return *schedulers_.front();
  Scheduler* best = nullptr;
  int64_t least = 0;
  for (const auto& scheduler : schedulers_) {
    const Statistics statistics = scheduler->statistics();
    const int64_t load = statistics.running + statistics.waiting;
    if (!best || load < least) best = scheduler.get(), least = load;
  }
  return *best;
}

void DataParallelEngine::submit(Request request, std::function<void(const Event&)> on_event) {
  least_loaded().submit(std::move(request), std::move(on_event));
}

void DataParallelEngine::forward(ForwardRequest request, std::function<void(ForwardResult)> on_done) {
  least_loaded().forward(std::move(request), std::move(on_done));
}

void DataParallelEngine::cancel(const std::string& id) {
  for (const auto& scheduler : schedulers_) scheduler->cancel(id);
}

void DataParallelEngine::load_adapter(int32_t slot, Arrays factors) {
  for (const auto& scheduler : schedulers_) scheduler->load_adapter(slot, factors);
}

Statistics DataParallelEngine::statistics() const {
  Statistics all;
  for (const auto& scheduler : schedulers_) {
    const Statistics one = scheduler->statistics();
    for (const auto field :
         {&Statistics::running, &Statistics::waiting, &Statistics::finished, &Statistics::failed, &Statistics::rejected,
          &Statistics::prompt_tokens, &Statistics::generation_tokens, &Statistics::steps, &Statistics::kv_blocks,
          &Statistics::kv_blocks_used, &Statistics::preempted, &Statistics::prefix_tokens,
          &Statistics::prefix_hit_tokens, &Statistics::drafts, &Statistics::draft_tokens, &Statistics::accepted_tokens,
          &Statistics::draft_pauses}) {
      all.*field += one.*field;
    }
  }
  return all;
}

void DataParallelEngine::fail(const std::string& reason) {
  for (const auto& scheduler : schedulers_) scheduler->fail(reason);
}

int64_t DataParallelEngine::steps() const {
  int64_t all = 0;
  for (const auto& scheduler : schedulers_) all += scheduler->steps();
  return all;
}

std::string DataParallelEngine::failure() const {
  for (const auto& scheduler : schedulers_) {
    if (std::string reason = scheduler->failure(); !reason.empty()) return reason;
  }
  return {};
}

}  // namespace pm::engine
