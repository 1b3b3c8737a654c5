// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/worker/server/support/fake_engine.h"

#include <algorithm>

#include "worker/base/error.h"

namespace pm::test {

using engine::Event;
using engine::Finish;

FakeEngine::FakeEngine(Token token)
    : token_(token ? std::move(token)
                   : [](const engine::Request& r,
                        int64_t step) { return r.prompt[static_cast<size_t>(step) % r.prompt.size()]; }),
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
  if (!failure_.empty()) throw Error(Reason::RankLost, failure_);
  for (int32_t id : request.prompt)
    if (id > 256)
      throw Error(Reason::InvalidRequest, "token id " + std::to_string(id) + " is outside the vocabulary of 257");
  if (open_.size() >= limit_) throw Error(Reason::QueueFull, std::to_string(open_.size()) + " requests wait already");
  submitted_requests_.push_back(request);
  prompt_tokens_ += static_cast<int64_t>(request.prompt.size());
  open_.push_back({std::move(request), std::move(on_event)});
  wake_.notify_all();
}

void FakeEngine::forward(engine::ForwardRequest request, std::function<void(engine::ForwardResult)> on_done) {
  std::lock_guard lock(mutex_);
  if (!failure_.empty()) throw Error(Reason::RankLost, failure_);
  if (open_.size() + open_forwards_.size() >= limit_)
    throw Error(Reason::QueueFull, std::to_string(limit_) + " requests wait already");
  forward_requests_.push_back(request);
  open_forwards_.push_back({std::move(request), std::move(on_done)});
  wake_.notify_all();
}

void FakeEngine::cancel(const std::string& id) {
  std::unique_lock lock(mutex_);
  cancelled_.insert(id);
  std::erase_if(open_forwards_, [&](const OpenForward& item) { return item.request.id == id; });
  for (auto it = open_.begin(); it != open_.end(); ++it) {
    if (it->request.id != id) continue;
    const Sequence gone = std::move(*it);
    open_.erase(it);
    lock.unlock();
    end(gone, Finish::Cancelled, "");
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
  std::deque<OpenForward> lost_forwards;
  {
    std::lock_guard lock(mutex_);
    failure_ = reason;
    lost.swap(open_);
    lost_forwards.swap(open_forwards_);
  }
  for (auto& item : lost_forwards) item.on_done({{}, Finish::Failed, reason});
  for (auto& sequence : lost) end(sequence, Finish::Failed, reason);
}

int64_t FakeEngine::steps() const { return statistics().steps; }

void FakeEngine::hold(bool held) {
  std::lock_guard lock(mutex_);
  held_ = held;
  wake_.notify_all();
}

void FakeEngine::hold_generation() {
  std::lock_guard lock(mutex_);
  generation_held_ = true;
}

void FakeEngine::allow(int64_t n) {
  std::lock_guard lock(mutex_);
  for (auto& sequence : open_) sequence.allowed += n;
  wake_.notify_all();
}

void FakeEngine::set_cached_tokens(int64_t tokens) {
  std::lock_guard lock(mutex_);
  cached_ = tokens;
}

void FakeEngine::limit_open(size_t requests) {
  std::lock_guard lock(mutex_);
  limit_ = requests;
}

void FakeEngine::prefer(int32_t id, float logprob) {
  std::lock_guard lock(mutex_);
  preferred_[id] = logprob;
}

void FakeEngine::answer_forward(ForwardFunction function) {
  std::lock_guard lock(mutex_);
  forward_function_ = std::move(function);
}

std::vector<engine::ForwardRequest> FakeEngine::forward_requests() const {
  std::lock_guard lock(mutex_);
  return forward_requests_;
}

std::vector<engine::Request> FakeEngine::submitted_requests() const {
  std::lock_guard lock(mutex_);
  return submitted_requests_;
}

std::set<std::string> FakeEngine::cancelled() const {
  std::lock_guard lock(mutex_);
  return cancelled_;
}

size_t FakeEngine::open() const {
  std::lock_guard lock(mutex_);
  return open_.size() + open_forwards_.size();
}

void FakeEngine::loop() {
  std::unique_lock lock(mutex_);
  const auto runnable = [this](const Sequence& s) { return (!held_ && !generation_held_) || s.allowed > 0; };
  for (;;) {
    wake_.wait(lock, [&] {
      return stopping_ || (!held_ && !open_forwards_.empty()) || std::any_of(open_.begin(), open_.end(), runnable);
    });
    if (stopping_) return;
    if (!held_ && !open_forwards_.empty()) {
      OpenForward item = std::move(open_forwards_.front());
      open_forwards_.pop_front();
      item.on_done({forward_function_ ? forward_function_(item.request) : Arrays(), Finish::Stop, {}});
      continue;
    }
    auto it = std::find_if(open_.begin(), open_.end(), runnable);
    Sequence sequence = std::move(*it);
    open_.erase(it);
    step(std::move(sequence));
  }
}

void FakeEngine::end(const Sequence& sequence, Finish finish, const std::string& reason) {
  for (int64_t s = 0; s < sequence.request.search.num_return_sequences; ++s)
    if (!sequence.ended.contains(s)) sequence.on_event({.sequence = s, .finish = finish, .reason = reason});
}

std::vector<engine::PromptToken> FakeEngine::scored_prompt(const engine::Request& request) {
  std::vector<engine::PromptToken> scored;
  for (size_t i = 1; i < request.prompt.size(); ++i) {
    auto& [token, rank] = scored.emplace_back(engine::Token{request.prompt[i], -static_cast<float>(i), {}}, i + 1);
    for (int32_t k = 0; k < request.prompt_logprobs; ++k) token.top_logprobs.emplace_back('0' + k, -0.5F * k);
  }
  return scored;
}

engine::Token FakeEngine::token_of(const engine::Request& request, int64_t step) const {
  engine::Token token{.id = token_(request, step)};
  if (request.logprobs < 0) return token;
  const auto preferred = preferred_.find(token.id);
  token.logprob = preferred == preferred_.end() ? -0.25F : preferred->second;
  for (int64_t k = 0; k < request.logprobs; ++k)
    token.top_logprobs.emplace_back(token.id + static_cast<int32_t>(k), -0.25F - static_cast<float>(k));
  return token;
}

Finish FakeEngine::finish_of(const engine::Request& request, int32_t id, int64_t generated) {
  if (!request.ignore_eos && std::find(request.eos.begin(), request.eos.end(), id) != request.eos.end())
    return Finish::Stop;
  return generated == request.max_new_tokens ? Finish::Length : Finish::None;
}

/// Emits a token for each running sequence; sequence s is one step ahead of the one before it. Beams are emitted whole
/// when the first has ended.
void FakeEngine::step(Sequence open) {
  const engine::Request& request = open.request;
  const bool beams = request.search.num_beams > 1;
  ++steps_;
  if (open.allowed > 0) --open.allowed;
  ++open.generated;
  for (int64_t s = 0; s < request.search.num_return_sequences; ++s) {
    if (open.ended.contains(s)) continue;
    Event event{.sequence = s};
    if (beams) {
      if (open.generated < request.max_new_tokens) continue;
      for (int64_t step = 0; step < request.max_new_tokens && event.finish == Finish::None; ++step) {
        event.tokens.push_back(token_of(request, step + s));
        event.finish = finish_of(request, event.tokens.back().id, step + 1);
      }
      event.score = -0.5 * static_cast<double>(s + 1);
    } else {
      event.tokens = {token_of(request, open.generated - 1 + s)};
      event.finish = finish_of(request, event.tokens[0].id, open.generated);
    }
    if (!open.first_event_sent) {
      event.queued_seconds = 0.001;
      event.cached_tokens = cached_;
      if (request.prompt_logprobs >= 0)
        event.prompt_tokens = std::make_shared<const std::vector<engine::PromptToken>>(scored_prompt(request));
      open.first_event_sent = true;
    }
    tokens_ += static_cast<int64_t>(event.tokens.size());
    if (event.finish != Finish::None) open.ended.insert(s);
    open.on_event(event);  // the callback never blocks and never calls the engine
  }
  if (static_cast<int64_t>(open.ended.size()) < request.search.num_return_sequences) open_.push_back(std::move(open));
}

}  // namespace pm::test
