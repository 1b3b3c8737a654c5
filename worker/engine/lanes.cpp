// See lanes.h.
#include "worker/engine/lanes.h"

#include <algorithm>

namespace pm::engine {

Lanes::Lanes(Group& group, const Limits& limits, Observer observer) : observer_(std::move(observer)), open_(group.lanes().size()) {
  for (size_t lane = 0; lane < open_.size(); ++lane) schedulers_.push_back(std::make_unique<Scheduler>(*group.lanes()[lane], limits, of_lane(lane)));
}

Observer Lanes::of_lane(size_t lane) {
  Observer observer;
  if (observer_.times) observer.times = [this](const StepTimes& times) {
    std::lock_guard lock(mutex_);
    observer_.times(times);
  };
  if (observer_.after_step) observer.after_step = [this, lane](int64_t, int64_t open) {
    std::lock_guard lock(mutex_);
    open_[lane] = open;
    int64_t all = 0;
    for (const int64_t one : open_) all += one;
    observer_.after_step(++steps_, all);
  };
  return observer;
}

Scheduler& Lanes::least_loaded() {
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

void Lanes::submit(Request request, std::function<void(const Event&)> on_event) { least_loaded().submit(std::move(request), std::move(on_event)); }

void Lanes::forward(ForwardRequest request, std::function<void(ForwardResult)> on_done) { least_loaded().forward(std::move(request), std::move(on_done)); }

void Lanes::cancel(const std::string& id) {
  for (const auto& scheduler : schedulers_) scheduler->cancel(id);
}

Statistics Lanes::statistics() const {
  Statistics all;
  for (const auto& scheduler : schedulers_) {
    const Statistics one = scheduler->statistics();
    for (const auto field : {&Statistics::running, &Statistics::waiting, &Statistics::finished, &Statistics::failed, &Statistics::rejected, &Statistics::prompt_tokens,
                             &Statistics::generation_tokens, &Statistics::steps, &Statistics::kv_blocks, &Statistics::kv_blocks_used, &Statistics::preempted,
                             &Statistics::prefix_tokens, &Statistics::prefix_hit_tokens}) {
      all.*field += one.*field;
    }
  }
  return all;
}

void Lanes::fail(const std::string& reason) {
  for (const auto& scheduler : schedulers_) scheduler->fail(reason);
}

int64_t Lanes::steps() const {
  int64_t all = 0;
  for (const auto& scheduler : schedulers_) all += scheduler->steps();
  return all;
}

std::string Lanes::failure() const {
  for (const auto& scheduler : schedulers_) {
    if (std::string reason = scheduler->failure(); !reason.empty()) return reason;
  }
  return {};
}

}  // namespace pm::engine
