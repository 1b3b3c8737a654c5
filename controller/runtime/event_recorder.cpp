// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/event_recorder.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "controller/core/object.h"
#include "controller/core/status_error.h"
#include "controller/runtime/event_series.h"

#include "base/log.h"

namespace pm::k8s {
namespace {

constexpr size_t max_waiting = 1024;
constexpr std::chrono::seconds last_words_time{1};

}  // namespace

class EventRecorder::Impl {
 public:
  Impl(Api& api, const Clock& clock, std::string controller, std::string instance)
      : api_(api),
        clock_(clock),
        series_(std::move(controller), std::move(instance)),
        thread_([this](std::stop_token stop) { run(stop); }) {}

  void record(Occurrence occurrence) {
    std::lock_guard lock(mutex_);
    if (waiting_.size() >= max_waiting) return;
    waiting_.push_back({std::move(occurrence), clock_.wall()});
    wake_.notify_one();
  }

 private:
  struct Waiting {
    Occurrence occurrence;
    Clock::Wall at;
  };

  void run(std::stop_token stop) {
    std::optional<std::chrono::steady_clock::time_point> end;
    while (true) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, stop, [this] { return !waiting_.empty(); });
      if (stop.stop_requested() && !end) end = std::chrono::steady_clock::now() + last_words_time;
      if (waiting_.empty() || (end && std::chrono::steady_clock::now() > *end)) return;
      const Waiting next = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      send(next);
    }
  }

  void send(const Waiting& next) {
    const auto request = series_.observe(next.occurrence, next.at);
    if (!request) return;
    const Response response = api_.send(*request);
    if (!failed(response)) return;
    series_.lost(request->ns, request->name);
    VLOG(1) << "event " << request->name << " is lost: " << to_string(error_of(response));
  }

  Api& api_;
  const Clock& clock_;
  EventSeries series_;  // of the thread only
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<Waiting> waiting_;
  std::jthread thread_;  // last: ends first
};

EventRecorder::EventRecorder(Api& api, const Clock& clock, std::string controller, std::string instance)
    : impl_(std::make_unique<Impl>(api, clock, std::move(controller), std::move(instance))) {}
EventRecorder::~EventRecorder() = default;

void EventRecorder::record(const Json& regarding, Type type, const std::string& reason, const std::string& action,
                           const std::string& note) {
  VLOG(1) << to_string(key_of(regarding)) << ": " << reason << ": " << note;
  impl_->record({reference_to(regarding), type == Type::Normal ? "Normal" : "Warning", reason, action, note});
}

}  // namespace pm::k8s
