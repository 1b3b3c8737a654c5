// SPDX-License-Identifier: Apache-2.0
// Requests of several sequences to the summing executor, and what comes back of them.
#pragma once
#include <cmath>

#include "tests/unit/worker/engine/summing_executor.h"

namespace pm::engine {

/// Collects the events of all sequences of a request.
struct Replies {
  std::mutex mutex;
  std::condition_variable done;
  std::vector<std::vector<int32_t>> tokens;
  std::vector<Finish> finishes;
  std::vector<double> scores;
  int64_t cached = -1, open;
  explicit Replies(int64_t sequences)
      : tokens(static_cast<size_t>(sequences)),
        finishes(static_cast<size_t>(sequences), Finish::None),
        scores(static_cast<size_t>(sequences)),
        open(sequences) {}
  void operator()(const Event& event) {
    std::lock_guard lock(mutex);
    const auto i = static_cast<size_t>(event.sequence);
    ASSERT_LT(i, tokens.size());
    EXPECT_EQ(finishes[i], Finish::None) << "an event after the end";
    for (const Token& token : event.tokens) tokens[i].push_back(token.id);
    if (event.cached_tokens >= 0) cached = event.cached_tokens;
    finishes[i] = event.finish;
    scores[i] = event.score;
    if (event.finish != Finish::None && --open == 0) done.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(done.wait_for(lock, std::chrono::seconds(60), [&] { return open == 0; }));
  }
};

inline Request request_of(const std::string& id, std::vector<int32_t> prompt, int64_t count, SearchParams search = {}) {
  Request request{
      .id = id, .prompt = std::move(prompt), .max_new_tokens = count, .sampling = {}, .eos = {}, .search = search};
  return request;
}

inline void submit(Fixture& f, Request request, Replies& replies) {
  f.scheduler.submit(std::move(request), [&](const Event& event) { replies(event); });
}

/// Log-probability of `answer` after `prompt` under the summing executor.
inline double log_probability(const SummingExecutor& executor, std::vector<int32_t> prompt,
                              const std::vector<int32_t>& answer, std::span<const int32_t> source = {}) {
  double total = 0;
  for (int32_t token : answer) {
    const bool likely = token == (sum_of(source) + sum_of(prompt)) % vocabulary;
    total += (likely ? executor.sharpness : 0) - std::log(std::exp(executor.sharpness) + vocabulary - 1);
    prompt.push_back(token);
  }
  return total;
}

/// Runs eight requests of samples and of beams in turn, for which the fixture has too few blocks, and expects of each
/// what it answers alone.
inline void expect_preemption_changes_no_answer(Fixture& f) {
  f.executor->sharpness = 3;
  std::vector<std::unique_ptr<Replies>> replies;
  std::vector<Request> requests;
  for (int i = 0; i < 8; ++i) {
    SearchParams search{.num_beams = i % 2 ? 4 : 1, .num_return_sequences = i % 2 ? 2 : 3, .length_penalty = 0};
    requests.push_back(request_of(std::to_string(i), prompt_of(i, 18), 45, search));
    requests.back().sampling.do_sample = i % 2 == 0;
    requests.back().sampling.seed = static_cast<uint64_t>(i);
    replies.push_back(std::make_unique<Replies>(search.num_return_sequences));
    submit(f, requests.back(), *replies.back());
  }
  for (auto& one : replies) one->wait();
  EXPECT_GT(f.scheduler.statistics().preempted, 0);
  for (size_t i = 0; i < requests.size(); ++i) {
    Replies alone(requests[i].search.num_return_sequences);
    submit(f, requests[i], alone);
    alone.wait();
    EXPECT_EQ(alone.tokens, replies[i]->tokens) << i;
  }
  EXPECT_EQ(f.scheduler.statistics().kv_blocks_used, 0);
}

/// Runs 24 requests without speculation and with it, where few KV blocks preempt some, and expects equal answers.
/// Returns the counters with it.
inline Statistics expect_the_answers_without(const Speculation& speculation, bool device_sampling, int64_t kv_blocks) {
  const std::vector<SamplingParams> ways{
      {},
      {.do_sample = true, .seed = 5},
      {.do_sample = true, .temperature = 0.7, .top_k = 20, .seed = 6},
      {.do_sample = true, .seed = 8, .repetition_penalty = 0.5, .presence_penalty = 0.5},
      {.do_sample = true, .seed = 10, .min_p = 0.02},
      {.no_repeat_ngram_size = 2}};
  std::vector<std::vector<std::vector<int32_t>>> answers[2];
  Statistics statistics;
  for (const bool speculates : {false, true}) {
    Limits limits{.vocabulary = vocabulary,
                  .positions = 512,
                  .kv_blocks = kv_blocks,
                  .max_concurrency = 10,
                  .max_queue = 100,
                  .step_tokens = 32};
    if (speculates) limits.speculation = speculation;
    Fixture f(limits, device_sampling);
    f.executor->sharpness = 4;
    std::vector<std::unique_ptr<Replies>> replies;
    for (int i = 0; i < 24; ++i) {
      const bool has_beams = i % 8 == 7;
      Request request = request_of(std::to_string(i), prompt_of(i % 9, 1 + static_cast<size_t>(i * 5 % 50)), 25,
                                   {.num_beams = has_beams ? 2 : 1, .num_return_sequences = i % 4 == 1 ? 2 : 1});
      if (!has_beams) request.sampling = ways[static_cast<size_t>(i) % ways.size()];
      replies.push_back(std::make_unique<Replies>(request.search.num_return_sequences));
      submit(f, std::move(request), *replies.back());
    }
    for (const auto& one : replies) {
      one->wait();
      answers[speculates].push_back(one->tokens);
    }
    statistics = f.scheduler.statistics();
    EXPECT_EQ(statistics.kv_blocks_used, 0);
  }
  EXPECT_EQ(answers[0], answers[1]);
  return statistics;
}

}  // namespace pm::engine
