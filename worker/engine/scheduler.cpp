// See scheduler.h.
#include "worker/engine/scheduler.h"

#include <algorithm>

#include "worker/base/error.h"
#include "worker/engine/rows.h"
#include "worker/base/log.h"

namespace pm::engine {

namespace {

constexpr auto idle_beat = std::chrono::seconds(1);   // followers hear an empty step at least this often

void send(Outbox& outbox) {
  for (auto& [listener, event] : outbox) if (*listener) (*listener)(event);
}

/// What the passes run of their inputs; these are copied only in parts. Texts beside images have rows of their own, so that a whole is not sliced.
template <typename Passes>
ForwardJob job_of(Passes& passes) {
  const ForwardRequest& first = passes.front().request;
  ForwardJob job{{}, first.hidden_states, first.attentions, first.outputs};
  for (auto& pass : passes) {
    Arrays& inputs = pass.request.inputs;
    job.inputs.push_back(pass.rows_running == pass.rows ? std::move(inputs) : slice_rows(inputs, pass.rows_done, pass.rows_running));
  }
  return job;
}

double seconds(Time::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

Scheduler::Scheduler(Rank& rank, std::vector<std::shared_ptr<comm::Channel>> followers, Limits limits, Observer observer, std::function<Time()> clock)
    : rank_(rank), followers_(std::move(followers)), limits_(limits), observer_(std::move(observer)), clock_(std::move(clock)), batcher_(limits) {
  thread_ = std::thread([this] { loop(); });
}

Scheduler::~Scheduler() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Scheduler::submit(Request request, std::function<void(const Event&)> on_event) {
  if (!rank_.executor().generates()) throw Error(ErrorKind::Request, "InvalidRequest", "this model does not generate");
  std::unique_ptr<Work> work = batcher_.make(std::move(request), std::move(on_event), clock_());
  {
    std::lock_guard lock(mutex_);
    if (!failure_.empty()) throw Error(ErrorKind::RankLost, "RankLost", failure_);
    refuse_when_full();
    batcher_.enqueue(std::move(work));
  }
  wake_.notify_all();
}

void Scheduler::refuse_when_full() {
  const int64_t waiting = batcher_.waiting() + static_cast<int64_t>(passes_.size());
  if (waiting < limits_.max_queue) return;
  ++statistics_.rejected;
  throw Error(ErrorKind::Request, "QueueFull", std::to_string(waiting) + " requests wait already; try again later");
}

void Scheduler::forward(ForwardRequest request, std::function<void(ForwardResult)> on_done) {
  rank_.executor().check(request.inputs);
  const int64_t rows = rows_of(request.inputs);
  {
    std::lock_guard lock(mutex_);
    if (!failure_.empty()) throw Error(ErrorKind::RankLost, "RankLost", failure_);
    refuse_when_full();
    passes_.push_back({std::move(request), std::move(on_done), rows});
  }
  wake_.notify_all();
}

void Scheduler::cancel(const std::string& id) {
  std::lock_guard lock(mutex_);
  batcher_.cancel(id);
  for (Pass& pass : passes_) if (pass.request.id == id) pass.request.id.clear();
  if (running_passes_) {
    for (Pass& pass : *running_passes_) if (pass.request.id == id) pass.request.id.clear();   // for when more rows are to come
  }
  wake_.notify_all();
}

Statistics Scheduler::statistics() const {
  std::lock_guard lock(mutex_);
  Statistics result = batcher_.statistics();
  result.waiting += static_cast<int64_t>(passes_.size());
  result.finished += statistics_.finished;
  result.failed += statistics_.failed;
  result.rejected = statistics_.rejected;
  result.steps = statistics_.steps;
  return result;
}

int64_t Scheduler::steps() const {
  std::lock_guard lock(mutex_);
  return statistics_.steps;
}

std::string Scheduler::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

void Scheduler::fail(const std::string& reason) {
  {
    std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = reason;
  }
  wake_.notify_all();
  fail_all(reason);
}

void Scheduler::fail_all(const std::string& reason) {
  Outbox outbox;
  std::vector<std::function<void(ForwardResult)>> passes;
  {
    std::lock_guard lock(mutex_);
    batcher_.fail_all(reason, outbox);
    for (Pass& pass : passes_) passes.push_back(std::move(pass.on_done));
    passes_.clear();
    if (running_passes_) {
      for (Pass& pass : *running_passes_) passes.push_back(std::exchange(pass.on_done, nullptr));
    }
    statistics_.failed += static_cast<int64_t>(passes.size());
  }
  send(outbox);
  for (auto& done : passes) if (done) done({{}, Finish::Failed, reason});
}

void Scheduler::drop_cancelled() {
  Outbox outbox;
  std::vector<std::function<void(ForwardResult)>> passes;
  {
    std::lock_guard lock(mutex_);
    batcher_.drop_cancelled(outbox);
    for (Pass& pass : passes_) if (pass.request.id.empty()) passes.push_back(std::move(pass.on_done));
    std::erase_if(passes_, [](const Pass& pass) { return pass.request.id.empty(); });
  }
  send(outbox);
  for (auto& done : passes) if (done) done({{}, Finish::Cancelled, {}});
}

StepResult Scheduler::run(const StepMessage& message, std::span<const Choosing> choosing) {
  if (!followers_.empty()) {
    const std::vector<uint8_t> bytes = encode(message);
    for (auto& follower : followers_) follower->send(bytes);
  }
  return rank_.run(message, choosing);
}

/// One generating step, which may be empty, and then at most one pass: neither kind of request waits for all of the other.
void Scheduler::run_step() {
  const Time begin = clock_();
  StepTimes times;
  StepMessage message;
  std::vector<Choosing> choosing;
  Outbox outbox;
  {
    std::lock_guard lock(mutex_);
    message = batcher_.plan(begin, choosing, outbox);
    message.step = ++statistics_.steps;
    times.prompt_tokens = batcher_.planned_prompt_tokens();
  }
  send(outbox);
  outbox.clear();
  for (const StepEntry& entry : message.entries) times.tokens += static_cast<int64_t>(entry.tokens.size() + entry.source.size());
  const StepResult result = run(message, choosing);
  {
    std::lock_guard lock(mutex_);
    batcher_.apply(result.chosen, clock_(), outbox);
  }
  send(outbox);
  const bool passed = run_pass(times);
  if (passed || !message.entries.empty()) observe(times, begin);
  int64_t open_now = 0;
  {
    std::lock_guard lock(mutex_);
    open_now = open();
  }
  last_end_ = open_now > 0 ? std::optional(clock_()) : std::nullopt;
  if (observer_.after_step) observer_.after_step(message.step, open_now);
}

int64_t Scheduler::open() const { return batcher_.running() + batcher_.waiting() + static_cast<int64_t>(passes_.size()); }

void Scheduler::observe(StepTimes times, Time begin) {
  if (!observer_.times) return;
  times.seconds = seconds(clock_() - begin);
  if (last_end_) times.gap_seconds = seconds(begin - *last_end_);
  observer_.times(times);
}

/// The waiting passes that make one step: a part of the first one when it is larger, else all that want the same of it and fit.
std::vector<Scheduler::Pass> Scheduler::take_passes(int64_t& tokens) {
  const auto alone = [&](const ForwardRequest& request) { return !limits_.split_passes || request.hidden_states || request.attentions; };
  std::vector<Pass> taken;
  int64_t room = limits_.step_tokens;
  for (auto pass = passes_.begin(); pass != passes_.end();) {
    const ForwardRequest& request = pass->request;
    const int64_t left = pass->rows - pass->rows_done, cost = row_cost(request.inputs, limits_.step_tokens);
    if (!taken.empty() && (alone(request) || request.outputs != taken.front().request.outputs || left * cost > room || pass->rows_done > 0)) {
      ++pass;
      continue;
    }
    pass->rows_running = limits_.split_passes ? rows_of_step(request.inputs, pass->rows_done, limits_.step_tokens) : left;
    const bool last = alone(request) || pass->rows_running < left;
    room -= pass->rows_running * cost;
    tokens += pass->rows_running * cost;
    taken.push_back(std::move(*pass));
    pass = passes_.erase(pass);
    if (last || room <= 0) break;
  }
  return taken;
}

bool Scheduler::run_pass(StepTimes& times) {
  std::vector<Pass> taken;
  StepMessage message;
  {
    std::lock_guard lock(mutex_);
    if (passes_.empty()) return false;
    taken = take_passes(times.tokens);
    running_passes_ = &taken;
    message.step = ++statistics_.steps;
    message.freed = batcher_.take_freed();
  }
  message.forward = job_of(taken);
  try {
    finish_passes(taken, run(message).outputs);
  } catch (...) {   // fail() ends them with all others
    std::lock_guard lock(mutex_);
    running_passes_ = nullptr;
    for (Pass& pass : taken) passes_.push_back(std::move(pass));
    throw;
  }
  return true;
}

void Scheduler::finish_passes(std::vector<Pass>& taken, std::vector<Arrays> outputs) {
  std::vector<Pass> done;
  {
    std::lock_guard lock(mutex_);
    running_passes_ = nullptr;
    for (size_t i = 0; i < taken.size(); ++i) {
      Pass& pass = taken[i];
      if (!pass.on_done) continue;   // fail() has ended it while the ranks still ran
      append_rows(pass.outputs, std::move(outputs.at(i)));
      pass.rows_done += pass.rows_running;
      if (pass.rows_done >= pass.rows) done.push_back(std::move(pass));
      else passes_.push_back(std::move(pass));   // behind the others: a large pass does not hold them up
    }
    taken.clear();
    statistics_.finished += static_cast<int64_t>(done.size());
  }
  for (Pass& pass : done) pass.on_done({std::move(pass.outputs), Finish::Stop, {}});
}

/// After the last step the group is as it was before the first: no rank keeps a table.
void Scheduler::give_back_slots() {
  StepMessage last;
  {
    std::lock_guard lock(mutex_);
    if (!failure_.empty()) return;
    last.freed = batcher_.take_freed(/*all=*/true);
  }
  run(last);
}

void Scheduler::loop() {
  try {
    for (;;) {
      drop_cancelled();
      {
        std::unique_lock lock(mutex_);
        wake_.wait_for(lock, idle_beat, [&] { return stopping_ || !failure_.empty() || open() > 0; });
        if (stopping_ || !failure_.empty()) break;
      }
      run_step();
    }
    give_back_slots();
  } catch (const std::exception& error) {
    LOG(ERROR) << "the engine stops: " << error.what();
    fail(error.what());
  }
  {
    std::lock_guard lock(mutex_);
    batcher_.cancel_all();
    for (Pass& pass : passes_) pass.request.id.clear();
  }
  drop_cancelled();
}

}  // namespace pm::engine
