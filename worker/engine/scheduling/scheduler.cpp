// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/scheduling/scheduler.h"

#include <algorithm>

#include "worker/base/error.h"

#include "base/log.h"

namespace pm::engine {

namespace {

constexpr auto heartbeat_interval =
    std::chrono::seconds(1);  // idle ranks receive an empty step message at least this often

void send(Outbox& outbox) {
  for (auto& [listener, event] : outbox)
    if (*listener) (*listener)(event);
}

void send(CompletionCallbacks& ended) {
  for (const auto& callback : ended) callback();
}

/// All ranks run on the same kind of device, so rank 0's executor answers for all.
Limits with_device_sampling(Limits limits, DpRank& dp_rank) {
  limits.device_sampling = dp_rank.executor().device_sampler() != nullptr;
  return limits;
}

double seconds(Time::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

Scheduler::Scheduler(DpRank& dp_rank, Limits limits, Observer observer, std::function<Time()> clock)
    : dp_rank_(dp_rank),
      limits_(with_device_sampling(limits, dp_rank)),
      observer_(std::move(observer)),
      clock_(std::move(clock)),
      batcher_(limits_),
      forward_queue_(limits.step_tokens, limits.split_forward, limits.micro_batches, limits.least_states,
                     limits.image_tokens) {
  thread_ = std::thread([this] { loop(); });
}

Scheduler::Scheduler(std::unique_ptr<DpRank> dp_rank, Limits limits, Observer observer, std::function<Time()> clock)
    : Scheduler(*dp_rank, limits, std::move(observer), std::move(clock)) {
  own_dp_rank_ = std::move(dp_rank);
}

Scheduler::Scheduler(Rank& rank, Channels followers, Limits limits, Observer observer, std::function<Time()> clock)
    : Scheduler(std::make_unique<DirectDpRank>(rank, std::move(followers)), limits, std::move(observer),
                std::move(clock)) {}

Scheduler::~Scheduler() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  adapter_loaded_.notify_all();
  thread_.join();
}

void Scheduler::submit(Request request, std::function<void(const Event&)> on_event) {
  parallel::GenerationExecutor* generation = dp_rank_.executor().generation();
  if (!generation) throw Error(Reason::InvalidRequest, "this model does not generate text");
  const int64_t source_tokens =
      limits_.source_inputs && !request.source.empty() ? generation->source_input(request.source).batch_rows() : 0;
  std::unique_ptr<SequenceGroup> group =
      batcher_.make(std::move(request), std::move(on_event), clock_(), source_tokens);
  {
    std::lock_guard lock(mutex_);
    if (!failure_.empty()) throw Error(Reason::RankLost, failure_);
    refuse_when_full();
    batcher_.enqueue(std::move(group));
  }
  wake_.notify_all();
}

void Scheduler::refuse_when_full() {
  const int64_t waiting = batcher_.waiting() + forward_queue_.waiting();
  if (waiting < limits_.max_queue) return;
  ++rejected_;
  throw Error(Reason::QueueFull, std::to_string(waiting) + " requests are waiting, which is the maximum; retry later");
}

void Scheduler::forward(ForwardRequest request, std::function<void(ForwardResult)> on_done) {
  if (request.attentions && !limits_.shows_attentions)
    throw Error(Reason::InvalidRequest,
                "attentions are not put out by this model, whose tokens see others in chunks; omit \"attentions\"");
  dp_rank_.executor().check(request.inputs);
  {
    std::lock_guard lock(mutex_);
    if (!failure_.empty()) throw Error(Reason::RankLost, failure_);
    refuse_when_full();
    forward_queue_.add(std::move(request), std::move(on_done));
  }
  wake_.notify_all();
}

void Scheduler::load_adapter(int32_t slot, Arrays factors) {
  std::unique_lock lock(mutex_);
  adapter_loads_.push_back({slot, std::move(factors)});
  const int64_t number = ++adapters_requested_;
  wake_.notify_all();
  adapter_loaded_.wait(lock, [&] { return adapters_loaded_ >= number || !failure_.empty() || stopping_; });
  if (adapters_loaded_ < number) throw Error(Reason::RankLost, failure_.empty() ? "the engine is stopping" : failure_);
}

void Scheduler::cancel(const std::string& id) {
  std::lock_guard lock(mutex_);
  batcher_.cancel(id);
  forward_queue_.cancel(id);
  wake_.notify_all();
}

Statistics Scheduler::statistics() const {
  std::lock_guard lock(mutex_);
  Statistics result = batcher_.statistics();
  result.waiting += forward_queue_.waiting();
  result.finished += forward_queue_.finished();
  result.failed += forward_queue_.failed();
  result.rejected = rejected_;
  result.steps = steps_;
  return result;
}

int64_t Scheduler::steps() const {
  std::lock_guard lock(mutex_);
  return steps_;
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
  adapter_loaded_.notify_all();
  fail_all(reason);
}

void Scheduler::fail_all(const std::string& reason) {
  Outbox outbox;
  CompletionCallbacks ended;
  {
    std::lock_guard lock(mutex_);
    batcher_.fail_all(reason, outbox);
    std::vector<ForwardPart> under_way;
    for (const InFlightStep& pending : in_flight_)
      under_way.insert(under_way.end(), pending.parts.begin(), pending.parts.end());
    forward_queue_.fail_all(reason, under_way, ended);
  }
  send(outbox);
  send(ended);
}

void Scheduler::drop_cancelled() {
  Outbox outbox;
  CompletionCallbacks ended;
  {
    std::lock_guard lock(mutex_);
    batcher_.drop_cancelled(outbox);
    forward_queue_.drop_cancelled(ended);
  }
  send(outbox);
  send(ended);
}

int64_t Scheduler::open() const { return batcher_.running() + batcher_.waiting() + forward_queue_.open(); }

/// Sends messages as long as the pipeline and the queues have capacity, then waits for the oldest result.
void Scheduler::step() {
  const auto depth = static_cast<size_t>(dp_rank_.max_in_flight());
  while (in_flight_.size() < depth && launch()) {
  }
  if (in_flight_.empty()) send_heartbeat_step();
  complete_step();
}

bool Scheduler::launch() {
  if (launch_adapters()) return true;
  forward_next_ = !forward_next_;
  return forward_next_ ? launch_tokens() || launch_forward() : launch_forward() || launch_tokens();
}

/// Sends the adapters that are to be loaded, in a message of their own.
bool Scheduler::launch_adapters() {
  InFlightStep pending;
  pending.begin = clock_();
  {
    std::lock_guard lock(mutex_);
    if (adapter_loads_.empty()) return false;
    pending.message.adapter_loads.push_back(std::move(adapter_loads_.front()));
    adapter_loads_.pop_front();
  }
  start(std::move(pending));
  return true;
}

/// Sends a generation step. At most pipeline_batches are in flight: a further one would stay a small batch, which takes
/// a stage as long as a large one.
bool Scheduler::launch_tokens() {
  const auto under_way = std::count_if(in_flight_.begin(), in_flight_.end(),
                                       [](const InFlightStep& pending) { return !pending.message.entries.empty(); });
  if (under_way >= limits_.pipeline_batches) return false;
  InFlightStep pending;
  pending.begin = clock_();
  Outbox outbox;
  {
    std::lock_guard lock(mutex_);
    pending.message = batcher_.plan(pending.begin, pending.sampling_inputs, outbox);
    pending.times.prompt_tokens = batcher_.planned_prompt_tokens();
  }
  send(outbox);
  const StepMessage& message = pending.message;
  if (message.entries.empty() && message.freed_slots.empty() && message.block_copies.empty()) return false;
  for (const StepEntry& entry : message.entries)
    pending.times.tokens += static_cast<int64_t>(entry.tokens.size()) + (entry.encodes() ? entry.source_tokens : 0);
  masks_.compute(pending.sampling_inputs);  // while the ranks run the step
  start(std::move(pending));
  return true;
}

bool Scheduler::launch_forward() {
  InFlightStep pending;
  pending.begin = clock_();
  {
    std::lock_guard lock(mutex_);
    pending.parts = forward_queue_.take(pending.times.tokens);
    if (pending.parts.empty()) return false;
    pending.message.freed_slots = batcher_.take_freed_slots();
  }
  try {
    pending.message.forward = ForwardQueue::make_job(pending.parts);
  } catch (...) {  // fail() ends them with all others
    std::lock_guard lock(mutex_);
    in_flight_.push_back(std::move(pending));
    throw;
  }
  try {
    start(std::move(pending));
  } catch (const Error& error) {  // only the request that exceeds the device's memory ends
    if (error.reason != Reason::OOMKilled || !dp_rank_.is_single_rank()) throw;
    LOG(ERROR) << "a forward request failed: " << error.what();
    CompletionCallbacks ended;
    {
      std::lock_guard lock(mutex_);
      forward_queue_.refuse(in_flight_.back().parts, error.what(), ended);
      in_flight_.pop_back();
    }
    send(ended);
  }
  return true;
}

/// Sends an empty step, so that idle ranks hear from rank 0.
void Scheduler::send_heartbeat_step() {
  InFlightStep pending;
  pending.begin = clock_();
  start(std::move(pending));
}

void Scheduler::start(InFlightStep pending) {
  InFlightStep* started = nullptr;
  {
    std::lock_guard lock(mutex_);
    pending.message.step = ++steps_;
    pending.message.bucket = graph_bucket(pending.message, dp_rank_.executor());
    in_flight_.push_back(std::move(pending));
    started = &in_flight_.back();
  }
  dp_rank_.send(started->message);
}

void Scheduler::complete_step() {
  StepOutput output = dp_rank_.take();
  InFlightStep& pending = in_flight_.front();
  Outbox outbox;
  CompletionCallbacks ended;
  if (!pending.message.entries.empty()) {
    const std::vector<SamplerOutput> sampled = sample(pending.message, pending.sampling_inputs, output);
    const Time now = clock_();
    std::lock_guard lock(mutex_);
    batcher_.observe(pending.message, seconds(now - pending.begin));
    batcher_.apply(sampled, now, outbox, std::move(output.prompt_tokens), output.states);
  }
  send(outbox);
  const bool worked = !pending.message.entries.empty() || !pending.parts.empty();
  const int64_t step = pending.message.step;
  const StepTimes times = pending.times;
  const Time begin = pending.begin;
  int64_t open_now = 0;
  {
    std::lock_guard lock(mutex_);
    adapters_loaded_ += static_cast<int64_t>(pending.message.adapter_loads.size());
    forward_queue_.finish(pending.parts, std::move(output.outputs), ended);
    in_flight_.pop_front();
    open_now = open();
  }
  send(ended);
  adapter_loaded_.notify_all();
  if (worked) observe(times, begin);
  last_end_ = open_now > 0 ? std::optional(clock_()) : std::nullopt;
  if (observer_.after_step) observer_.after_step(step, open_now);
}

void Scheduler::observe(StepTimes times, Time begin) {
  if (!observer_.times) return;
  times.seconds = seconds(clock_() - begin);
  if (last_end_) times.gap_seconds = std::max(0.0, seconds(begin - *last_end_));  // steps may overlap
  observer_.times(times);
}

/// Drops all block tables on the ranks after the last step.
void Scheduler::release_slots() {
  StepMessage last;
  {
    std::lock_guard lock(mutex_);
    if (!failure_.empty()) return;
    last.freed_slots = batcher_.take_freed_slots(/*all=*/true);
  }
  dp_rank_.send(last);
  dp_rank_.take();
}

void Scheduler::loop() {
  try {
    for (;;) {
      drop_cancelled();
      {
        std::unique_lock lock(mutex_);
        const auto due = [&] { return stopping_ || !failure_.empty() || open() > 0 || !adapter_loads_.empty(); };
        if (in_flight_.empty() && !due()) {
          dp_rank_.set_idle();
          wake_.wait_for(lock, heartbeat_interval, due);
        }
        if (stopping_ || !failure_.empty()) break;
      }
      step();
    }
    while (!in_flight_.empty() && failure().empty()) complete_step();
    release_slots();
  } catch (const std::exception& error) {
    LOG(ERROR) << "the engine stopped: " << error.what();
    fail(error.what());
  }
  dp_rank_.set_idle();
  {
    std::lock_guard lock(mutex_);
    batcher_.cancel_all();
    forward_queue_.cancel_all();
  }
  drop_cancelled();
}

}  // namespace pm::engine
