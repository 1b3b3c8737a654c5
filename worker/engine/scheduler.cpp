// See scheduler.h.
#include "worker/engine/scheduler.h"

#include <algorithm>

#include "worker/base/error.h"
#include "worker/base/log.h"

namespace pm::engine {

namespace {

constexpr auto idle_beat = std::chrono::seconds(1);   // followers hear an empty step at least this often

void send(Outbox& outbox) {
  for (auto& [listener, event] : outbox) if (*listener) (*listener)(event);
}

void send(Ended& ended) {
  for (const auto& tell : ended) tell();
}

/// All ranks are on the same kind of device, so that rank 0 knows of all.
Limits with_draws(Limits limits, Lane& lane) {
  limits.draws = lane.executor().draws();
  return limits;
}

double seconds(Time::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

Scheduler::Scheduler(Lane& lane, Limits limits, Observer observer, std::function<Time()> clock)
    : lane_(lane), limits_(with_draws(limits, lane)), observer_(std::move(observer)), clock_(std::move(clock)), batcher_(limits_),
      passes_(limits.step_tokens, limits.split_passes, limits.micro_batches) {
  thread_ = std::thread([this] { loop(); });
}

Scheduler::Scheduler(std::unique_ptr<Lane> lane, Limits limits, Observer observer, std::function<Time()> clock)
    : Scheduler(*lane, limits, std::move(observer), std::move(clock)) {
  own_lane_ = std::move(lane);
}

Scheduler::Scheduler(Rank& rank, Channels followers, Limits limits, Observer observer, std::function<Time()> clock)
    : Scheduler(std::make_unique<DirectLane>(rank, std::move(followers)), limits, std::move(observer), std::move(clock)) {}

Scheduler::~Scheduler() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Scheduler::submit(Request request, std::function<void(const Event&)> on_event) {
  if (!lane_.executor().generates()) throw Error(ErrorKind::Request, "InvalidRequest", "this model does not generate");
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
  const int64_t waiting = batcher_.waiting() + passes_.waiting();
  if (waiting < limits_.max_queue) return;
  ++rejected_;
  throw Error(ErrorKind::Request, "QueueFull", std::to_string(waiting) + " requests wait already; try again later");
}

void Scheduler::forward(ForwardRequest request, std::function<void(ForwardResult)> on_done) {
  lane_.executor().check(request.inputs);
  {
    std::lock_guard lock(mutex_);
    if (!failure_.empty()) throw Error(ErrorKind::RankLost, "RankLost", failure_);
    refuse_when_full();
    passes_.add(std::move(request), std::move(on_done));
  }
  wake_.notify_all();
}

void Scheduler::cancel(const std::string& id) {
  std::lock_guard lock(mutex_);
  batcher_.cancel(id);
  passes_.cancel(id);
  wake_.notify_all();
}

Statistics Scheduler::statistics() const {
  std::lock_guard lock(mutex_);
  Statistics result = batcher_.statistics();
  result.waiting += passes_.waiting();
  result.finished += passes_.finished();
  result.failed += passes_.failed();
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
  fail_all(reason);
}

void Scheduler::fail_all(const std::string& reason) {
  Outbox outbox;
  Ended ended;
  {
    std::lock_guard lock(mutex_);
    batcher_.fail_all(reason, outbox);
    std::vector<PassPart> under_way;
    for (const Flight& flight : flights_) under_way.insert(under_way.end(), flight.parts.begin(), flight.parts.end());
    passes_.fail_all(reason, under_way, ended);
  }
  send(outbox);
  send(ended);
}

void Scheduler::drop_cancelled() {
  Outbox outbox;
  Ended ended;
  {
    std::lock_guard lock(mutex_);
    batcher_.drop_cancelled(outbox);
    passes_.drop_cancelled(ended);
  }
  send(outbox);
  send(ended);
}

int64_t Scheduler::open() const { return batcher_.running() + batcher_.waiting() + passes_.open(); }

/// Fills the lane with messages as far as there is work for them, then takes the oldest result.
void Scheduler::step() {
  const auto depth = static_cast<size_t>(lane_.depth());
  while (flights_.size() < depth && launch()) {}
  if (flights_.empty()) launch_beat();
  land();
}

bool Scheduler::launch() {
  pass_next_ = !pass_next_;
  return pass_next_ ? launch_tokens() || launch_pass() : launch_pass() || launch_tokens();
}

/// As many messages as there are groups of sequences: one more would be a small group of its own for ever, which takes a stage as long as a large one.
bool Scheduler::launch_tokens() {
  const auto under_way = std::count_if(flights_.begin(), flights_.end(), [](const Flight& flight) { return !flight.message.entries.empty(); });
  if (under_way >= limits_.groups) return false;
  Flight flight;
  flight.begin = clock_();
  Outbox outbox;
  {
    std::lock_guard lock(mutex_);
    flight.message = batcher_.plan(flight.begin, flight.choosing, outbox);
    flight.times.prompt_tokens = batcher_.planned_prompt_tokens();
  }
  send(outbox);
  const StepMessage& message = flight.message;
  if (message.entries.empty() && message.freed.empty() && message.copies.empty()) return false;
  for (const StepEntry& entry : message.entries) flight.times.tokens += static_cast<int64_t>(entry.tokens.size() + entry.source.size());
  start(std::move(flight));
  return true;
}

bool Scheduler::launch_pass() {
  Flight flight;
  flight.begin = clock_();
  {
    std::lock_guard lock(mutex_);
    flight.parts = passes_.take(flight.times.tokens);
    if (flight.parts.empty()) return false;
    flight.message.freed = batcher_.take_freed();
  }
  try {
    flight.message.forward = Passes::job(flight.parts);
  } catch (...) {   // fail() ends them with all others
    std::lock_guard lock(mutex_);
    flights_.push_back(std::move(flight));
    throw;
  }
  try {
    start(std::move(flight));
  } catch (const Error& error) {   // a request that is too large for the device's memory ends, and nothing else does
    if (error.reason != "OOMKilled" || !lane_.alone()) throw;
    LOG(ERROR) << "a pass is given up: " << error.what();
    Ended ended;
    {
      std::lock_guard lock(mutex_);
      passes_.refuse(flights_.back().parts, error.what(), ended);
      flights_.pop_back();
    }
    send(ended);
  }
  return true;
}

/// An empty step: so idle ranks hear of rank 0.
void Scheduler::launch_beat() {
  Flight flight;
  flight.begin = clock_();
  start(std::move(flight));
}

void Scheduler::start(Flight flight) {
  Flight* started = nullptr;
  {
    std::lock_guard lock(mutex_);
    flight.message.step = ++steps_;
    flight.message.bucket = bucket_of(flight.message, lane_.executor());
    flights_.push_back(std::move(flight));
    started = &flights_.back();
  }
  lane_.send(started->message);
}

void Scheduler::land() {
  StepOutput output = lane_.take();
  Flight& flight = flights_.front();
  Outbox outbox;
  Ended ended;
  if (!flight.message.entries.empty()) {
    const std::vector<Chosen> chosen = choose(flight.message, flight.choosing, output);
    std::lock_guard lock(mutex_);
    batcher_.apply(chosen, clock_(), outbox);
  }
  send(outbox);
  const bool worked = !flight.message.entries.empty() || !flight.parts.empty();
  const int64_t step = flight.message.step;
  const StepTimes times = flight.times;
  const Time begin = flight.begin;
  int64_t open_now = 0;
  {
    std::lock_guard lock(mutex_);
    passes_.finish(flight.parts, std::move(output.outputs), ended);
    flights_.pop_front();
    open_now = open();
  }
  send(ended);
  if (worked) observe(times, begin);
  last_end_ = open_now > 0 ? std::optional(clock_()) : std::nullopt;
  if (observer_.after_step) observer_.after_step(step, open_now);
}

void Scheduler::observe(StepTimes times, Time begin) {
  if (!observer_.times) return;
  times.seconds = seconds(clock_() - begin);
  if (last_end_) times.gap_seconds = std::max(0.0, seconds(begin - *last_end_));   // it may have begun before the last one ended
  observer_.times(times);
}

/// After the last step the group is as it was before the first: no rank keeps a table.
void Scheduler::give_back_slots() {
  StepMessage last;
  {
    std::lock_guard lock(mutex_);
    if (!failure_.empty()) return;
    last.freed = batcher_.take_freed(/*all=*/true);
  }
  lane_.send(last);
  lane_.take();
}

void Scheduler::loop() {
  try {
    for (;;) {
      drop_cancelled();
      {
        std::unique_lock lock(mutex_);
        const auto due = [&] { return stopping_ || !failure_.empty() || open() > 0; };
        if (flights_.empty() && !due()) {
          lane_.rest();
          wake_.wait_for(lock, idle_beat, due);
        }
        if (stopping_ || !failure_.empty()) break;
      }
      step();
    }
    while (!flights_.empty() && failure().empty()) land();
    give_back_slots();
  } catch (const std::exception& error) {
    LOG(ERROR) << "the engine stops: " << error.what();
    fail(error.what());
  }
  lane_.rest();
  {
    std::lock_guard lock(mutex_);
    batcher_.cancel_all();
    passes_.cancel_all();
  }
  drop_cancelled();
}

}  // namespace pm::engine
