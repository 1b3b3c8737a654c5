// SPDX-License-Identifier: Apache-2.0
// Tests that speculation costs next to nothing where it does not pay, and goes on where it does: a batcher plans the
// steps of thousands of tokens, whose durations and accepted drafts follow a model of a machine and of texts.
#include <gmock/gmock.h>

#include <random>

#include "tests/unit/worker/engine/replies.h"

namespace pm::engine {
namespace {

constexpr int64_t tokens_of_an_answer = 128;

/// What the steps of a machine take, in steps without drafts.
struct Machine {
  double pass = 0;         ///< of each eight rows beyond the first eight: a kernel reads the weights again for them
  double row = 0;          ///< of each further row
  double draft = 0;        ///< of each token that a drafter makes of all sequences together
  double seconds = 0.025;  ///< of a step without drafts
};

constexpr Machine cpu{.pass = 0.6, .row = 0.01, .draft = 0.15};  // rows beyond eight, as with eight clients
constexpr Machine wide{.pass = 0.02, .row = 0, .draft = 0.05};   // bound by the memory that the weights come from

/// What a drafter was called for.
struct Calls {
  int64_t most = 0;            ///< drafts of a sequence
  bool reads_prompts = false;  ///< when it learned states last
};

/// Proposes as many tokens as it may.
class Guesses final : public Drafter {
 public:
  explicit Guesses(Calls& calls) : calls_(calls) {}
  void observe(std::span<const TokenStates> states) override { calls_.reads_prompts = states[0].prompt > 0; }
  Drafts propose(std::span<const DraftRequest> requests) override {
    Drafts drafts;
    for (const DraftRequest& request : requests) {
      drafts.tokens.emplace_back(static_cast<size_t>(request.count), 1);
      calls_.most = std::max(calls_.most, request.count);
    }
    return drafts;
  }

 private:
  Calls& calls_;
};

/// Clients that send a request behind each answer.
class Load {
 public:
  Load(int64_t clients, const Machine& machine) : clients_(clients), machine_(machine) {}

  /// Serves so many rounds of requests, of whose drafts a part `rate` is right, and returns tokens for each that would
  /// have come in this time without drafts.
  double serve(int rounds, double rate) {
    double seconds = 0;
    const int64_t wanted = rounds * clients_ * tokens_of_an_answer, before = tokens_;
    while (tokens_ - before < wanted) {
      while (open_ < clients_) {
        batcher_.enqueue(batcher_.make(request_of(std::to_string(requests_++), {2, 3, 4}, tokens_of_an_answer),
                                       [this](const Event& event) { open_ -= event.finish != Finish::None; }, {}));
        ++open_;
      }
      seconds += step(rate);
    }
    return static_cast<double>(tokens_ - before) / (seconds / machine_.seconds * static_cast<double>(clients_));
  }

  bool reads_prompts() const { return calls_.reads_prompts; }

 private:
  double step(double rate) {
    std::vector<SamplingInput> inputs;
    Outbox outbox;
    calls_.most = 0;
    const StepMessage message = batcher_.plan({}, inputs, outbox);
    std::vector<SamplerOutput> outputs;
    int64_t rows = 0, states = 0;
    for (const StepEntry& entry : message.entries) {
      rows += 1 + entry.drafts;
      states += entry.states ? static_cast<int64_t>(entry.tokens.size()) : 0;
      SamplerOutput output;
      int64_t accepted = 0;
      while (accepted < entry.drafts && std::bernoulli_distribution(rate)(random_)) ++accepted;
      for (int64_t i = 0; i <= accepted; ++i) output.tokens.push_back({i < accepted ? 1 : 5, 0, {}});
      tokens_ += accepted + 1;
      outputs.push_back(std::move(output));
    }
    const double noise = std::normal_distribution(1.0, 0.05)(random_);
    const double seconds =
        machine_.seconds * noise *
        (1 + machine_.pass * static_cast<double>((std::max(rows, clients_) - 1) / 8 - (clients_ - 1) / 8) +
         machine_.row * static_cast<double>(std::max<int64_t>(0, rows - clients_)) +
         machine_.draft * static_cast<double>(calls_.most));
    batcher_.observe(message, seconds);
    batcher_.apply(outputs, {}, outbox, {}, at::zeros({states, 1}));
    for (auto& [listener, event] : outbox) (*listener)(event);
    return seconds;
  }

  const int64_t clients_;
  const Machine machine_;
  Batcher batcher_{{.vocabulary = vocabulary,
                    .positions = 512,
                    .kv_blocks = 1000,
                    .max_concurrency = 32,
                    .max_queue = 100,
                    .step_tokens = 512,
                    .speculation = Speculation{8, [this] { return std::make_unique<Guesses>(calls_); }, true}}};
  std::mt19937 random_{1};
  int64_t requests_ = 0, open_ = 0, tokens_ = 0;
  Calls calls_;
};

TEST(SpeculationUnderLoad, CostsNextToNothingWhereItDoesNotPay) {
  for (const double rate : {0.0, 0.05, 0.3, 0.5, 0.8}) {
    Load load(8, cpu);
    EXPECT_GT(load.serve(1, rate), 0.85) << rate << ": while nothing is known";
    EXPECT_GT(load.serve(20, rate), 0.98) << rate;
    EXPECT_FALSE(load.reads_prompts()) << rate;
  }
  Load alone(1, wide);
  EXPECT_GT(alone.serve(20, 0), 0.98);
}

TEST(SpeculationUnderLoad, GainsWhereItPays) {
  Load alone(1, wide), together(8, wide);
  EXPECT_GT(alone.serve(20, 0.8), 2.5);
  EXPECT_GT(together.serve(20, 0.8), 2);
  EXPECT_TRUE(together.reads_prompts());
  EXPECT_GT(together.serve(20, 0.5), 1.4) << "the step's own cost, which one sequence alone would not make good";
}

TEST(SpeculationUnderLoad, FollowsTheTexts) {
  Load load(8, wide);
  for (int i = 0; i < 3; ++i) {
    EXPECT_GT(load.serve(5, 0), 0.95) << i;
    EXPECT_GT(load.serve(5, 0.8), 2) << i;
  }
}

}  // namespace
}  // namespace pm::engine
