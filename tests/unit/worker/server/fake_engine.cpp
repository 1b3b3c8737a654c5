#include "tests/unit/worker/server/fake_engine.h"

#include <algorithm>

#include "worker/base/error.h"

namespace pm::test {

using engine::Event;
using engine::Finish;

FakeEngine::FakeEngine(Token token)
    : token_(token ? std::move(token) : [](const engine::Request& r, int64_t step) { return r.prompt[static_cast<size_t>(step) % r.prompt.size()]; }),
      thread_([this] { loop(); }) {}

FakeEngine::~FakeEngine() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void FakeEngine::submit(engine::Request request, std::function<void(const Event&)> on_event) {
  std::lock_guard lock(mutex_);
  if (!failure_.empty()) throw Error(ErrorKind::RankLost, "RankLost", failure_);
  for (int32_t id : request.prompt)
    if (id > 256) throw Error(ErrorKind::Request, "InvalidRequest", "token id " + std::to_string(id) + " is outside the vocabulary of 257");
  if (open_.size() >= limit_) throw Error(ErrorKind::Request, "QueueFull", std::to_string(open_.size()) + " requests wait already");
  seen_.push_back(request);
  prompt_tokens_ += static_cast<int64_t>(request.prompt.size());
  open_.push_back({std::move(request), std::move(on_event)});
  wake_.notify_all();
}

void FakeEngine::forward(engine::ForwardRequest request, std::function<void(engine::ForwardResult)> on_done) {
  std::lock_guard lock(mutex_);
  if (!failure_.empty()) throw Error(ErrorKind::RankLost, "RankLost", failure_);
  if (open_.size() + passes_.size() >= limit_) throw Error(ErrorKind::Request, "QueueFull", std::to_string(limit_) + " requests wait already");
  passes_seen_.push_back(request);
  passes_.push_back({std::move(request), std::move(on_done)});
  wake_.notify_all();
}

void FakeEngine::cancel(const std::string& id) {
  std::unique_lock lock(mutex_);
  cancelled_.insert(id);
  std::erase_if(passes_, [&](const OpenPass& pass) { return pass.request.id == id; });
  for (auto it = open_.begin(); it != open_.end(); ++it) {
    if (it->request.id != id) continue;
    auto on_event = std::move(it->on_event);
    open_.erase(it);
    lock.unlock();
    on_event({.finish = Finish::Cancelled});
    return;
  }
}

engine::Statistics FakeEngine::statistics() const {
  std::lock_guard lock(mutex_);
  engine::Statistics statistics;
  statistics.running = static_cast<int64_t>(open_.size());
  statistics.generation_tokens = tokens_;
  statistics.prompt_tokens = prompt_tokens_;
  statistics.steps = steps_;
  statistics.kv_blocks = 8;
  statistics.kv_blocks_used = 2;
  return statistics;
}

void FakeEngine::fail(const std::string& reason) {
  std::deque<Sequence> lost;
  std::deque<OpenPass> lost_passes;
  {
    std::lock_guard lock(mutex_);
    failure_ = reason;
    lost.swap(open_);
    lost_passes.swap(passes_);
  }
  for (auto& pass : lost_passes) pass.on_done({{}, Finish::Failed, reason});
  for (auto& sequence : lost) sequence.on_event({.finish = Finish::Failed, .reason = reason});
}

int64_t FakeEngine::steps() const { return statistics().steps; }

void FakeEngine::hold(bool held) {
  std::lock_guard lock(mutex_);
  held_ = held;
  wake_.notify_all();
}

void FakeEngine::allow(int64_t n) {
  std::lock_guard lock(mutex_);
  for (auto& sequence : open_) sequence.allowed += n;
  wake_.notify_all();
}

void FakeEngine::limit_open(size_t requests) {
  std::lock_guard lock(mutex_);
  limit_ = requests;
}

void FakeEngine::answer_passes(Pass pass) {
  std::lock_guard lock(mutex_);
  pass_ = std::move(pass);
}

std::vector<engine::ForwardRequest> FakeEngine::passes_seen() const {
  std::lock_guard lock(mutex_);
  return passes_seen_;
}

std::vector<engine::Request> FakeEngine::seen() const {
  std::lock_guard lock(mutex_);
  return seen_;
}

std::set<std::string> FakeEngine::cancelled() const {
  std::lock_guard lock(mutex_);
  return cancelled_;
}

size_t FakeEngine::open() const {
  std::lock_guard lock(mutex_);
  return open_.size() + passes_.size();
}

void FakeEngine::loop() {
  std::unique_lock lock(mutex_);
  const auto runnable = [this](const Sequence& s) { return !held_ || s.allowed > 0; };
  for (;;) {
    wake_.wait(lock, [&] { return stopping_ || (!held_ && !passes_.empty()) || std::any_of(open_.begin(), open_.end(), runnable); });
    if (stopping_) return;
    if (!held_ && !passes_.empty()) {
      OpenPass pass = std::move(passes_.front());
      passes_.pop_front();
      pass.on_done({pass_ ? pass_(pass.request) : Arrays(), Finish::Stop, {}});
      continue;
    }
    auto it = std::find_if(open_.begin(), open_.end(), runnable);
    Sequence sequence = std::move(*it);
    open_.erase(it);
    step(std::move(sequence));
  }
}

void FakeEngine::step(Sequence sequence) {
  ++steps_;
  ++tokens_;
  if (sequence.allowed > 0) --sequence.allowed;
  Event event{.tokens = {{.id = token_(sequence.request, sequence.generated++)}}};
  if (sequence.generated == 1) event.queued_seconds = 0.001;
  const auto& eos = sequence.request.eos;
  if (!sequence.request.ignore_eos && std::find(eos.begin(), eos.end(), event.tokens[0].id) != eos.end()) event.finish = Finish::Stop;
  else if (sequence.generated == sequence.request.max_new_tokens) event.finish = Finish::Length;
  sequence.on_event(event);   // never blocks, never calls us back
  if (event.finish == Finish::None) open_.push_back(std::move(sequence));
}

}  // namespace pm::test
