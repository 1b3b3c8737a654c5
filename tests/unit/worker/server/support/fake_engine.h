// SPDX-License-Identifier: Apache-2.0
// An engine without a model: a thread emits one token per request in turn, as the test defines.
#pragma once
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "worker/engine/engine.h"

namespace pm::test {

class FakeEngine final : public engine::Engine {
 public:
  using Token = std::function<int32_t(const engine::Request&, int64_t step)>;
  using ForwardFunction = std::function<Arrays(const engine::ForwardRequest&)>;
  /// The default repeats the prompt, so every reply shows to which request it belongs; sequence s begins s tokens
  /// later. The log-probability of id + k is -0.25 - k, or what prefer() says. Token i of a scored prompt has -i and
  /// the rank i + 1, its alternative k the id k and -0.5 k; the scores of beams are -0.5, -1, ...
  explicit FakeEngine(Token token = {});
  ~FakeEngine() override;

  void submit(engine::Request, std::function<void(const engine::Event&)>) override;
  void forward(engine::ForwardRequest, std::function<void(engine::ForwardResult)>) override;
  void cancel(const std::string& id) override;
  engine::Statistics statistics() const override;
  void fail(const std::string& reason) override;
  int64_t steps() const override;

  /// While true, requests are accepted and cancelled but get no token.
  void hold(bool held);
  /// Requests get no token from now on, and forward requests are answered.
  void hold_generation();
  /// Allows `n` more tokens per request despite hold(true).
  void allow(int64_t n);
  void limit_open(size_t requests);
  /// Sets the number of tokens of each prompt that the prefix cache provides.
  void set_cached_tokens(int64_t tokens);
  /// Sets the log-probability of the tokens with this id.
  void prefer(int32_t id, float logprob);
  /// Sets the function that computes the outputs of forward requests, on the engine's thread. Without it outputs are
  /// empty.
  void answer_forward(ForwardFunction function);
  std::vector<engine::Request> submitted_requests() const;
  std::vector<engine::ForwardRequest> forward_requests() const;
  std::set<std::string> cancelled() const;
  size_t open() const;

 private:
  struct Sequence {
    engine::Request request;
    std::function<void(const engine::Event&)> on_event;
    int64_t generated = 0, allowed = 0;
    std::set<int64_t> ended;  ///< indices of the sequences that have ended
    bool first_event_sent = false;
  };
  struct OpenForward {
    engine::ForwardRequest request;
    std::function<void(engine::ForwardResult)> on_done;
  };
  void loop();
  void step(Sequence sequence);
  static void end(const Sequence& sequence, engine::Finish finish, const std::string& reason);
  static std::vector<engine::PromptToken> scored_prompt(const engine::Request& request);
  engine::Token token_of(const engine::Request& request, int64_t step) const;
  static engine::Finish finish_of(const engine::Request& request, int32_t id, int64_t generated);

  const Token token_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Sequence> open_;
  std::deque<OpenForward> open_forwards_;
  ForwardFunction forward_function_;
  std::map<int32_t, float> preferred_;
  std::vector<engine::Request> submitted_requests_;
  std::vector<engine::ForwardRequest> forward_requests_;
  std::set<std::string> cancelled_;
  std::string failure_;
  size_t limit_ = 1000;
  bool held_ = false, generation_held_ = false, stopping_ = false;
  int64_t steps_ = 0, tokens_ = 0, prompt_tokens_ = 0, cached_ = 0;
  std::thread thread_;
};

}  // namespace pm::test
