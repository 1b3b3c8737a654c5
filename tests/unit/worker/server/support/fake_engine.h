// An engine without a model: a thread that gives each request in turn one token, as the test says.
#pragma once
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "worker/engine/request.h"

namespace pm::test {

class FakeEngine final : public engine::Engine {
 public:
  using Token = std::function<int32_t(const engine::Request&, int64_t step)>;
  using Pass = std::function<Arrays(const engine::ForwardRequest&)>;
  /// The default echoes the prompt again and again, so every reply shows whose it is; sequence s begins s tokens later. Log-probabilities are
  /// -0.25 - k of the token's id + k; scores of beams -0.5, -1, ...
  explicit FakeEngine(Token token = {});
  ~FakeEngine() override;

  void submit(engine::Request, std::function<void(const engine::Event&)>) override;
  void forward(engine::ForwardRequest, std::function<void(engine::ForwardResult)>) override;
  void cancel(const std::string& id) override;
  engine::Statistics statistics() const override;
  void fail(const std::string& reason) override;
  int64_t steps() const override;

  /// While held, requests are taken and cancelled but get no token.
  void hold(bool held);
  /// Lets `n` tokens through per request although held.
  void allow(int64_t n);
  void limit_open(size_t requests);
  /// Tokens of each prompt that were there already.
  void say_cached(int64_t tokens);
  /// What passes give; absent: nothing. Called on the engine's thread.
  void answer_passes(Pass pass);
  std::vector<engine::Request> seen() const;
  std::vector<engine::ForwardRequest> passes_seen() const;
  std::set<std::string> cancelled() const;
  size_t open() const;

 private:
  struct Sequence {
    engine::Request request;
    std::function<void(const engine::Event&)> on_event;
    int64_t generated = 0, allowed = 0;
    std::set<int64_t> ended;               ///< of its num_return_sequences
    bool told = false;                     ///< its first event went out
  };
  struct OpenPass {
    engine::ForwardRequest request;
    std::function<void(engine::ForwardResult)> on_done;
  };
  void loop();
  void step(Sequence sequence);
  static void end(const Sequence& sequence, engine::Finish finish, const std::string& reason);
  engine::Token token_of(const engine::Request& request, int64_t step) const;
  static engine::Finish finish_of(const engine::Request& request, int32_t id, int64_t generated);

  const Token token_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Sequence> open_;
  std::deque<OpenPass> passes_;
  Pass pass_;
  std::vector<engine::Request> seen_;
  std::vector<engine::ForwardRequest> passes_seen_;
  std::set<std::string> cancelled_;
  std::string failure_;
  size_t limit_ = 1000;
  bool held_ = false, stopping_ = false;
  int64_t steps_ = 0, tokens_ = 0, prompt_tokens_ = 0, cached_ = 0;
  std::thread thread_;
};

}  // namespace pm::test
