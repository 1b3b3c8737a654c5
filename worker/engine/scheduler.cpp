// See scheduler.h.
#include "worker/engine/scheduler.h"

#include <algorithm>

#include "worker/base/error.h"
#include "worker/engine/rows.h"
#include "worker/ops/attention.h"
#include "worker/base/log.h"

namespace pm::engine {

namespace {
constexpr auto idle_beat = std::chrono::seconds(1);   // followers hear an empty step at least this often
}

int64_t blocks_for(int64_t tokens) { return (tokens + ops::block_tokens - 1) / ops::block_tokens; }

Scheduler::Scheduler(Rank& rank, std::vector<std::shared_ptr<comm::Channel>> followers, Limits limits,
                     std::function<void(int64_t, int64_t)> after_step)
    : rank_(rank), followers_(std::move(followers)), limits_(limits), after_step_(std::move(after_step)) {
  for (int64_t i = limits_.kv_blocks; i-- > 0;) free_blocks_.push_back(static_cast<int32_t>(i));
  for (int64_t i = limits_.max_concurrency; i-- > 0;) free_slots_.push_back(static_cast<int32_t>(i));
  statistics_.kv_blocks = limits_.kv_blocks;
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

int64_t Scheduler::Sequence::all_blocks() const {
  return blocks_for(static_cast<int64_t>(request.prompt.size()) + request.max_new_tokens) + blocks_for(static_cast<int64_t>(source.size()));
}

void Scheduler::submit(Request request, std::function<void(const Event&)> on_event) {
  const auto refuse = [](const std::string& message) { throw Error(ErrorKind::Request, "InvalidRequest", message); };
  if (!rank_.executor().generates()) refuse("this model does not generate");
  if (request.prompt.empty()) refuse("the prompt has no tokens; at least one is needed");
  if (request.max_new_tokens < 1) refuse("max_new_tokens is " + std::to_string(request.max_new_tokens) + "; at least 1 is needed");
  for (int32_t id : request.prompt) {
    if (id < 0 || id >= limits_.vocabulary) {
      refuse("token id " + std::to_string(id) + " is outside the vocabulary of " + std::to_string(limits_.vocabulary));
    }
  }
  auto sequence = std::make_unique<Sequence>();
  if (limits_.decoder_start >= 0) {
    sequence->source = std::move(request.prompt);
    request.prompt = {limits_.decoder_start};
  }
  const auto read = static_cast<int64_t>(sequence->source.size()), tokens = static_cast<int64_t>(request.prompt.size()) + request.max_new_tokens;
  const auto too_long = [&](const std::string& what, int64_t asked, int64_t room) {
    refuse(what + " is " + std::to_string(asked) + "; the longest sequence served is " + std::to_string(room));
  };
  const int64_t room = std::min(limits_.positions, limits_.kv_blocks * ops::block_tokens);
  if (read > limits_.positions) too_long("input of " + std::to_string(read) + " tokens", read, limits_.positions);
  if (tokens > room) {
    too_long("prompt of " + std::to_string(request.prompt.size()) + " tokens plus " + std::to_string(request.max_new_tokens) + " new ones", tokens, room);
  }
  sequence->request = std::move(request);
  sequence->on_event = std::move(on_event);
  sequence->submitted = std::chrono::steady_clock::now();
  if (sequence->all_blocks() > limits_.kv_blocks) {
    too_long("input of " + std::to_string(read) + " tokens and answer of " + std::to_string(tokens), read + tokens, limits_.kv_blocks * ops::block_tokens);
  }
  {
    std::lock_guard lock(mutex_);
    if (!failure_.empty()) throw Error(ErrorKind::RankLost, "RankLost", failure_);
    refuse_when_full();
    waiting_.push_back(std::move(sequence));
  }
  wake_.notify_all();
}

void Scheduler::refuse_when_full() {
  const size_t waiting = waiting_.size() + passes_.size();
  if (static_cast<int64_t>(waiting) < limits_.max_queue) return;
  ++statistics_.rejected;
  throw Error(ErrorKind::Request, "QueueFull", std::to_string(waiting) + " requests wait already; try again later");
}

void Scheduler::forward(ForwardRequest request, std::function<void(ForwardResult)> on_done) {
  rank_.executor().check(request.inputs);
  {
    std::lock_guard lock(mutex_);
    if (!failure_.empty()) throw Error(ErrorKind::RankLost, "RankLost", failure_);
    refuse_when_full();
    passes_.push_back({std::move(request), std::move(on_done)});
  }
  wake_.notify_all();
}

void Scheduler::cancel(const std::string& id) {
  std::lock_guard lock(mutex_);
  for (auto& sequence : waiting_) if (sequence->request.id == id) sequence->cancelled = true;
  for (auto& sequence : running_) if (sequence->request.id == id) sequence->cancelled = true;
  for (Pass& pass : passes_) if (pass.request.id == id) pass.request.id.clear();
  if (running_pass_ && running_pass_->request.id == id) running_pass_->request.id.clear();   // when more rows are to come
  wake_.notify_all();
}

Statistics Scheduler::statistics() const {
  std::lock_guard lock(mutex_);
  Statistics result = statistics_;
  result.running = static_cast<int64_t>(running_.size());
  result.waiting = static_cast<int64_t>(waiting_.size() + passes_.size());
  result.kv_blocks_used = limits_.kv_blocks - static_cast<int64_t>(free_blocks_.size());
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
  std::vector<std::function<void(const Event&)>> streams;
  std::deque<Pass> passes;
  {
    std::lock_guard lock(mutex_);
    passes.swap(passes_);
    for (auto& sequence : waiting_) streams.push_back(std::move(sequence->on_event));
    for (auto& sequence : running_) streams.push_back(std::move(sequence->on_event));
    statistics_.failed += static_cast<int64_t>(streams.size() + passes.size());
    waiting_.clear();
    for (auto& sequence : running_) sequence->on_event = nullptr;   // a step may still hold the sequences; the loop clears them
    if (running_pass_) passes.push_back({{}, std::exchange(running_pass_->on_done, nullptr)});
  }
  for (auto& stream : streams) if (stream) stream({.finish = Finish::Failed, .reason = reason});
  for (Pass& pass : passes) pass.on_done({{}, Finish::Failed, reason});
}

/// Moves waiting requests into slots, first come first served, while slots and blocks for prompt and answer are free.
void Scheduler::admit() {
  while (!waiting_.empty() && !free_slots_.empty()) {
    Sequence& next = *waiting_.front();
    const auto need = static_cast<size_t>(next.all_blocks());
    if (need > free_blocks_.size()) return;
    next.admitted = std::chrono::steady_clock::now();
    next.slot = free_slots_.back();
    free_slots_.pop_back();
    next.blocks.assign(free_blocks_.rbegin(), free_blocks_.rbegin() + static_cast<std::ptrdiff_t>(need));
    free_blocks_.resize(free_blocks_.size() - need);
    const auto own = next.blocks.end() - blocks_for(static_cast<int64_t>(next.source.size()));
    next.source_blocks.assign(own, next.blocks.end());
    next.blocks.erase(own, next.blocks.end());
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

/// One token for every sequence in decode, then prompt chunks in order of admission until the step is full.
StepMessage Scheduler::plan_step(std::vector<Sequence*>& scheduled) {
  StepMessage message;
  message.step = statistics_.steps + 1;
  message.freed = std::move(freed_);
  freed_.clear();
  int64_t room = limits_.step_tokens;
  const auto add = [&](Sequence& sequence, std::vector<int32_t> tokens, int64_t count, bool sample) {
    StepEntry entry;
    entry.slot = sequence.slot;
    entry.context = sequence.context;
    entry.tokens = std::move(tokens);
    entry.sample = sample;
    if (sequence.context == 0) {
      entry.sampling = sequence.request.sampling;
      if (!sequence.request.ignore_eos) entry.sampling->eos.assign(sequence.request.eos.begin(), sequence.request.eos.end());
      entry.sampling->forced_bos = limits_.forced_bos;
      entry.sampling->forced_eos = limits_.forced_eos;
      entry.sampling->max_new_tokens = sequence.request.max_new_tokens;
      entry.prompt = static_cast<int64_t>(sequence.request.prompt.size());
      entry.source = sequence.source;
      entry.source_blocks = sequence.source_blocks;
    }
    const int64_t blocks = blocks_for(sequence.context + count);
    for (; sequence.told_blocks < blocks; ++sequence.told_blocks) entry.blocks.push_back(sequence.blocks[static_cast<size_t>(sequence.told_blocks)]);
    sequence.context += count;
    room -= count;
    message.entries.push_back(std::move(entry));
    scheduled.push_back(&sequence);
  };
  for (auto& sequence : running_) {
    if (sequence->context >= static_cast<int64_t>(sequence->request.prompt.size())) add(*sequence, {}, 1, true);
  }
  for (auto& sequence : running_) {
    const auto& prompt = sequence->request.prompt;
    const auto length = static_cast<int64_t>(prompt.size());
    if (sequence->context >= length || room <= 0) continue;
    const int64_t count = std::min(room, length - sequence->context);
    const auto from = prompt.begin() + static_cast<std::ptrdiff_t>(sequence->context);
    add(*sequence, {from, from + static_cast<std::ptrdiff_t>(count)}, count, sequence->context + count == length);
  }
  return message;
}

/// Gives back what a finished sequence held and ends its stream. Called with the mutex held; the event goes out by the caller.
void Scheduler::retire(Sequence& sequence, Event event) {
  free_blocks_.insert(free_blocks_.end(), sequence.source_blocks.rbegin(), sequence.source_blocks.rend());
  free_blocks_.insert(free_blocks_.end(), sequence.blocks.rbegin(), sequence.blocks.rend());
  if (sequence.slot >= 0) {
    free_slots_.push_back(sequence.slot);
    freed_.push_back(sequence.slot);
  }
  if (event.finish != Finish::Cancelled) ++statistics_.finished;
}

void Scheduler::drop_cancelled() {
  std::vector<std::function<void(const Event&)>> streams;
  std::vector<std::function<void(ForwardResult)>> passes;
  {
    std::lock_guard lock(mutex_);
    for (Pass& pass : passes_) if (pass.request.id.empty()) passes.push_back(std::move(pass.on_done));
    std::erase_if(passes_, [](const Pass& pass) { return pass.request.id.empty(); });
    const auto drop = [&](auto& sequences) {
      for (auto& sequence : sequences) {
        if (!sequence->cancelled) continue;
        if (sequence->slot >= 0) retire(*sequence, {.finish = Finish::Cancelled});
        if (sequence->on_event) streams.push_back(std::move(sequence->on_event));
        sequence.reset();
      }
      std::erase_if(sequences, [](const auto& sequence) { return !sequence; });
    };
    drop(waiting_);
    drop(running_);
  }
  for (auto& stream : streams) stream({.finish = Finish::Cancelled});
  for (auto& done : passes) done({{}, Finish::Cancelled, {}});
}

void Scheduler::deliver(const std::vector<Sequence*>& scheduled, const StepMessage& message, const std::vector<int32_t>& ids) {
  std::vector<std::pair<std::function<void(const Event&)>, Event>> events;
  {
    std::lock_guard lock(mutex_);
    size_t next = 0;
    for (size_t i = 0; i < scheduled.size(); ++i) {
      Sequence& sequence = *scheduled[i];
      const Request& request = sequence.request;
      if (!message.entries[i].sample) continue;
      const int32_t token = ids[next++];
      if (sequence.generated == 0) statistics_.prompt_tokens += static_cast<int64_t>(sequence.source.empty() ? request.prompt.size() : sequence.source.size());
      ++statistics_.generation_tokens;
      ++sequence.generated;
      Event event{.tokens = {{.id = token}}};
      if (sequence.generated == 1) event.queued_seconds = std::chrono::duration<double>(sequence.admitted - sequence.submitted).count();
      const bool stop = !request.ignore_eos && std::find(request.eos.begin(), request.eos.end(), token) != request.eos.end();
      if (stop) event.finish = Finish::Stop;
      else if (sequence.generated == request.max_new_tokens) event.finish = Finish::Length;
      if (event.finish != Finish::None) retire(sequence, event);
      events.emplace_back(sequence.on_event, event);
      if (event.finish != Finish::None) sequence.slot = -2;   // marks it for removal
    }
    std::erase_if(running_, [](const auto& sequence) { return sequence->slot == -2; });
  }
  for (auto& [stream, event] : events) if (stream) stream(event);
}

StepResult Scheduler::run(const StepMessage& message) {
  if (!followers_.empty()) {
    const std::vector<uint8_t> bytes = encode(message);
    for (auto& follower : followers_) follower->send(bytes);
  }
  return rank_.run(message);
}

/// One generating step, which may be empty, and then at most one part of a pass: neither kind of request waits for all of the other.
void Scheduler::run_step() {
  std::vector<Sequence*> scheduled;
  StepMessage message;
  {
    std::lock_guard lock(mutex_);
    admit();
    message = plan_step(scheduled);
    ++statistics_.steps;
  }
  const StepResult result = run(message);
  deliver(scheduled, message, result.ids);
  run_pass();
  int64_t open = 0;
  {
    std::lock_guard lock(mutex_);
    open = static_cast<int64_t>(running_.size() + waiting_.size() + passes_.size());
  }
  if (after_step_) after_step_(message.step, open);
}

void Scheduler::run_pass() {
  Pass pass;
  StepMessage message;
  {
    std::lock_guard lock(mutex_);
    if (passes_.empty()) return;
    pass = std::move(passes_.front());
    passes_.pop_front();
    running_pass_ = &pass;
    message.step = ++statistics_.steps;
    message.freed = std::move(freed_);
    freed_.clear();
  }
  const int64_t rows = rows_of(pass.request.inputs);
  const int64_t count = limits_.split_passes ? rows_of_step(pass.request.inputs, pass.rows_done, limits_.step_tokens) : rows;
  message.forward = ForwardJob{count == rows ? std::move(pass.request.inputs) : slice_rows(pass.request.inputs, pass.rows_done, count),
                               pass.request.hidden_states, pass.request.attentions, pass.request.outputs};
  std::exception_ptr error;
  try {
    append_rows(pass.outputs, run(message).outputs);
    pass.rows_done += count;
  } catch (...) {
    error = std::current_exception();
  }
  const bool done = error || pass.rows_done >= rows;
  {
    std::lock_guard lock(mutex_);
    running_pass_ = nullptr;
    if (!done && pass.on_done) passes_.push_back(std::move(pass));   // behind the others: a large pass does not hold them up
    if (done && !error) ++statistics_.finished;
  }
  if (!done) return;
  // fail() may have ended it already, while the ranks still ran
  if (error && pass.on_done) pass.on_done({{}, Finish::Failed, "RankLost"});
  if (error) std::rethrow_exception(error);
  if (pass.on_done) pass.on_done({std::move(pass.outputs), Finish::Stop, {}});
}

/// After the last step the group is as it was before the first: no rank keeps a table.
void Scheduler::give_back_slots() {
  StepMessage last;
  {
    std::lock_guard lock(mutex_);
    if (!failure_.empty()) return;
    for (auto& sequence : running_) if (sequence->slot >= 0) freed_.push_back(sequence->slot);
    last.freed = std::move(freed_);
  }
  for (auto& follower : followers_) follower->send(encode(last));
  rank_.run(last);
}

void Scheduler::loop() {
  try {
    for (;;) {
      drop_cancelled();
      {
        std::unique_lock lock(mutex_);
        wake_.wait_for(lock, idle_beat, [&] { return stopping_ || !failure_.empty() || !waiting_.empty() || !running_.empty() || !passes_.empty(); });
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
    for (auto& sequence : waiting_) sequence->cancelled = true;
    for (auto& sequence : running_) sequence->cancelled = true;
    for (Pass& pass : passes_) pass.request.id.clear();
  }
  drop_cancelled();
}

}  // namespace pm::engine
