// SPDX-License-Identifier: Apache-2.0
// Answers of several inputs of an encoder, whose probabilities are added by weight: the summing executor gives one
// token all of the probability by each input, so that the answer shows which inputs count.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/unit/worker/engine/summing_executor.h"

namespace pm::engine {
namespace {

constexpr int32_t start = 9;

Limits limits_of(int64_t blocks, int64_t step_tokens = 64) {
  Limits limits{.vocabulary = vocabulary,
                .positions = 512,
                .kv_blocks = blocks,
                .max_concurrency = 24,
                .max_queue = 100,
                .step_tokens = step_tokens};
  limits.decoder_start = start;
  return limits;
}

/// The tokens and the end of each sequence of a request.
struct Answers {
  explicit Answers(size_t sequences) : tokens(sequences), scores(sequences), open(sequences) {}
  void operator()(const Event& event) {
    std::lock_guard lock(mutex);
    const auto i = static_cast<size_t>(event.sequence);
    tokens.at(i).insert(tokens[i].end(), event.tokens.begin(), event.tokens.end());
    scores[i] = event.score;
    finish = event.finish;
    if (event.finish != Finish::None && --open == 0) done.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(done.wait_for(lock, std::chrono::seconds(60), [&] { return open == 0; }));
  }
  std::vector<int32_t> ids(size_t i) const {
    std::vector<int32_t> all;
    for (const Token& token : tokens.at(i)) all.push_back(token.id);
    return all;
  }
  std::mutex mutex;
  std::vector<std::vector<Token>> tokens;
  std::vector<double> scores;
  size_t open;
  Finish finish = Finish::None;
  std::condition_variable done;
};

Request request_of(const std::string& id, const std::vector<std::vector<int32_t>>& sources,
                   const std::vector<double>& weights, int64_t count, SearchParams search = {}) {
  Request request{.id = id, .prompt = {}, .max_new_tokens = count, .sampling = {}, .eos = {}, .search = search};
  for (size_t i = 0; i < sources.size(); ++i)
    request.sources.push_back({sources[i], static_cast<float>(std::log(weights[i]))});
  return request;
}

std::unique_ptr<Answers> submit(Fixture& f, Request request) {
  auto answers = std::make_unique<Answers>(static_cast<size_t>(request.search.num_return_sequences));
  f.scheduler.submit(std::move(request), [&answers = *answers](const Event& event) { answers(event); });
  return answers;
}

/// The log-probability of a token after `tokens`, added over the sources by weight.
double log_probability(const SummingExecutor& executor, const std::vector<std::vector<int32_t>>& sources,
                       const std::vector<double>& weights, std::span<const int32_t> tokens, int32_t token) {
  double sum = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    const bool likely = (sum_of(sources[i]) + sum_of(tokens)) % vocabulary == token;
    sum += weights[i] * (likely ? std::exp(executor.sharpness) : 1) / (std::exp(executor.sharpness) + vocabulary - 1);
  }
  return std::log(sum);
}

double log_probability(const SummingExecutor& executor, const std::vector<std::vector<int32_t>>& sources,
                       const std::vector<double>& weights, const std::vector<int32_t>& answer) {
  std::vector<int32_t> tokens{start};
  double sum = 0;
  for (const int32_t token : answer) {
    sum += log_probability(executor, sources, weights, tokens, token);
    tokens.push_back(token);
  }
  return sum;
}

/// The first and the last one have the same sum, and so the same answer: together they outweigh the second.
const std::vector<std::vector<int32_t>> sources{prompt_of(3, 30), prompt_of(5, 17), prompt_of(3, 30)};
const std::vector<double> weights{0.25, 0.4, 0.35};

TEST(WeightedSources, TheProbabilitiesOfEqualTokensAdd) {
  Fixture f(limits_of(60));
  const auto answers = submit(f, request_of("all", sources, weights, 20));
  answers->wait();
  EXPECT_EQ(answers->ids(0), expected({start}, 20, sources[0]));
  EXPECT_NE(answers->ids(0), expected({start}, 20, sources[1]));
  const auto other = submit(f, request_of("other", sources, {0.2, 0.6, 0.2}, 20));
  other->wait();
  EXPECT_EQ(other->ids(0), expected({start}, 20, sources[1]));
  EXPECT_EQ(f.scheduler.statistics().kv_blocks_used, 0);
}

TEST(WeightedSources, LogProbabilitiesAreThoseOfTheSum) {
  Fixture f(limits_of(60));
  f.executor->sharpness = 4;
  Request request = request_of("logprobs", sources, weights, 6);
  request.logprobs = 0;
  const auto answers = submit(f, request);
  answers->wait();
  std::vector<int32_t> tokens{start};
  for (const Token& token : answers->tokens[0]) {
    EXPECT_NEAR(token.logprob, log_probability(*f.executor, sources, weights, tokens, token.id), 1e-5);
    tokens.push_back(token.id);
  }
}

TEST(WeightedSources, BeamsCarryTheLogProbabilityOfTheSum) {
  Fixture f(limits_of(90));
  f.executor->sharpness = 3;
  const auto answers = submit(
      f, request_of("beams", sources, weights, 12, {.num_beams = 4, .num_return_sequences = 4, .length_penalty = 0}));
  answers->wait();
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(answers->scores[i], log_probability(*f.executor, sources, weights, answers->ids(i)), 1e-3) << i;
    EXPECT_TRUE(i == 0 || answers->ids(i) != answers->ids(i - 1));
  }
  EXPECT_EQ(answers->ids(0), expected({start}, 12, sources[0])) << "the most likely answer";
  EXPECT_EQ(f.scheduler.statistics().kv_blocks_used, 0);
}

TEST(WeightedSources, SourcesThatExceedAStepAreReadInSeveral) {
  Fixture f(limits_of(90, 32));
  const std::vector<std::vector<int32_t>> longer{prompt_of(3, 100), prompt_of(5, 77), prompt_of(3, 100)};
  const auto answers = submit(f, request_of("long", longer, weights, 20));
  answers->wait();
  EXPECT_EQ(answers->ids(0), expected({start}, 20, longer[0]));
}

TEST(WeightedSources, SamplesAndBeamsSurvivePreemption) {
  Fixture f(limits_of(40));
  f.executor->sharpness = 3;
  std::vector<Request> requests;
  std::vector<std::unique_ptr<Answers>> together;
  for (int i = 0; i < 6; ++i) {
    const std::vector<std::vector<int32_t>> read{prompt_of(i, 20), prompt_of(i + 7, 9)};
    requests.push_back(request_of(std::to_string(i), read, {0.45, 0.55}, 40,
                                  {.num_beams = i % 2 ? 3 : 1, .num_return_sequences = 2, .length_penalty = 0}));
    requests.back().sampling.do_sample = i % 2 == 0;
    requests.back().sampling.seed = static_cast<uint64_t>(i);
    together.push_back(submit(f, requests.back()));
  }
  for (const auto& one : together) one->wait();
  EXPECT_GT(f.scheduler.statistics().preempted, 0);
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto alone = submit(f, requests[i]);
    alone->wait();
    for (size_t sequence = 0; sequence < 2; ++sequence)
      EXPECT_EQ(alone->ids(sequence), together[i]->ids(sequence)) << i;
  }
  EXPECT_EQ(f.scheduler.statistics().kv_blocks_used, 0);
}

TEST(WeightedSources, ForcedTokensAndEndTokensCountOnceForAllSources) {
  Fixture f(limits_of(60));
  Request request = request_of("forced", sources, weights, 8);
  request.sampling.forced_bos = 11;
  const auto forced = submit(f, request);
  forced->wait();
  ASSERT_EQ(forced->ids(0).size(), 8u);
  EXPECT_EQ(forced->ids(0)[0], 11);
  const std::vector<int32_t> all = expected({start}, 8, sources[0]);
  request = request_of("ended", sources, weights, 8);
  request.eos = {all[2]};
  const auto ended = submit(f, request);
  ended->wait();
  EXPECT_EQ(ended->finish, Finish::Stop);
  EXPECT_EQ(ended->ids(0), std::vector<int32_t>(all.begin(), all.begin() + 3));
  EXPECT_EQ(f.scheduler.statistics().kv_blocks_used, 0);
}

TEST(WeightedSources, RefusalsSayWhichSourceAndLimit) {
  Limits limits = limits_of(60);
  const auto refusal = [&](Request request) -> std::string {
    try {
      Batcher(limits).make(std::move(request), {}, {});
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(refusal(request_of("a", sources, weights, 5)), "");
  EXPECT_THAT(refusal(request_of("a", {{1}, {}}, {0.5, 0.5}, 5)), testing::HasSubstr("an input of the encoder has 0"));
  EXPECT_THAT(refusal(request_of("a", {{1}, {97}}, {0.5, 0.5}, 5)), testing::HasSubstr("token id 97 is outside"));
  EXPECT_EQ(refusal(request_of("a", sources, weights, 5, {.num_beams = 9})),
            "the request needs 27 concurrent sequences; the maximum is 24");
  limits.kv_blocks = 3;
  EXPECT_THAT(refusal(request_of("a", sources, weights, 5)),
              testing::HasSubstr("KV blocks of 16 tokens; 3 are available"));
  limits = limits_of(60);
  limits.source_positions = 20;
  EXPECT_THAT(refusal(request_of("a", sources, weights, 5)), testing::HasSubstr("the input of 30 tokens exceeds"));
  limits.decoder_start = -1;
  EXPECT_THAT(refusal(request_of("a", sources, weights, 5)), testing::HasSubstr("no decoder_start_token_id"));
}

}  // namespace
}  // namespace pm::engine
