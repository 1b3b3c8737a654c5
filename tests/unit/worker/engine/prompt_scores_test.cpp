// SPDX-License-Identifier: Apache-2.0
// Tests that the tokens of a prompt are scored once each, whatever chunks, preemptions and cached prefixes do to it.
#include <gmock/gmock.h>

#include <future>

#include "tests/unit/worker/engine/replies.h"

namespace pm::engine {
namespace {

constexpr float sharpness = 3;

/// A prompt in which every third token is the one that the summing executor expects.
std::vector<int32_t> half_expected(int seed, size_t length) {
  std::vector<int32_t> prompt;
  for (const int32_t token : prompt_of(seed, length)) {
    const bool expected_one = prompt.size() % 3 == 2;
    prompt.push_back(expected_one ? static_cast<int32_t>(sum_of(prompt) % vocabulary) : token);
  }
  return prompt;
}

void check(const std::vector<int32_t>& prompt, const std::vector<PromptToken>& scored, size_t best) {
  ASSERT_EQ(scored.size(), prompt.size() - 1);
  const double total = std::log(std::exp(sharpness) + vocabulary - 1);
  for (size_t i = 1; i < prompt.size(); ++i) {
    const auto likely = static_cast<int32_t>(sum_of(std::span(prompt).first(i)) % vocabulary);
    const auto& [token, rank] = scored[i - 1];
    EXPECT_EQ(token.id, prompt[i]);
    EXPECT_NEAR(token.logprob, (token.id == likely ? sharpness : 0) - total, 1e-5) << i;
    EXPECT_EQ(rank, token.id == likely ? 1 : 2) << i;
    ASSERT_EQ(token.top_logprobs.size(), best);
    if (best > 0) {
      EXPECT_EQ(token.top_logprobs[0].first, likely) << i;
    }
  }
}

/// A request whose prompt is scored, and what comes back.
struct Scored {
  std::vector<int32_t> prompt;
  int64_t best;
  std::shared_ptr<const std::vector<PromptToken>> tokens = {};
  int64_t cached = -1;
  std::promise<void> done = {};

  void submit(Fixture& f, const std::string& id, int64_t count) {
    f.executor->sharpness = sharpness;
    Request request = request_of(id, prompt, count);
    request.prompt_logprobs = best;
    f.scheduler.submit(std::move(request), [this](const Event& event) {
      if (event.prompt_tokens) tokens = event.prompt_tokens;
      if (event.cached_tokens >= 0) cached = event.cached_tokens;
      if (event.finish != Finish::None) done.set_value();
    });
  }
  void check() {
    done.get_future().wait();
    ASSERT_TRUE(tokens);
    engine::check(prompt, *tokens, static_cast<size_t>(best));
  }
};

Limits limits_of(int64_t kv_blocks) {
  return {.vocabulary = vocabulary,
          .positions = 512,
          .kv_blocks = kv_blocks,
          .max_concurrency = 8,
          .max_queue = 100,
          .step_tokens = 64};
}

TEST(PromptScores, AreThoseOfEveryTokenButTheFirstOverAllChunks) {
  Fixture f(limits_of(40));
  std::vector<Scored> all;
  for (const size_t length : {150, 1, 2, 64, 65, 66}) all.push_back({half_expected(1, length), 3});
  for (size_t i = 0; i < all.size(); ++i) all[i].submit(f, std::to_string(i), 5);
  for (Scored& one : all) one.check();
}

TEST(PromptScores, AreThoseOfTokensThatThePrefixCacheHasToo) {
  Fixture f(limits_of(40));
  Scored first{half_expected(2, 100), 0}, again{half_expected(2, 100), 1};
  first.submit(f, "first", 2);
  first.check();
  again.submit(f, "again", 2);
  again.check();
  EXPECT_EQ(again.cached, 0);
  Replies plain(1);
  submit(f, request_of("plain", half_expected(2, 100), 2), plain);
  plain.wait();
  EXPECT_EQ(plain.cached, 96) << "a scored prompt is cached for others";
}

TEST(PromptScores, AreWholeAfterPreemptions) {
  Fixture f(limits_of(14));
  std::vector<Scored> all;
  for (int i = 0; i < 12; ++i) all.push_back({half_expected(i, 40 + 8 * static_cast<size_t>(i)), 1});
  for (size_t i = 0; i < all.size(); ++i) all[i].submit(f, std::to_string(i), 60);
  for (Scored& one : all) one.check();
  EXPECT_GT(f.scheduler.statistics().preempted, 0);
}

TEST(PromptScores, OfAPromptThatIsPreemptedHalfwayBeginAgain) {
  Limits limits = limits_of(7);
  limits.step_tokens = 2;
  Batcher batcher(limits);
  const Time now{};
  Outbox outbox;
  std::vector<SamplingInput> sampling_inputs;
  size_t scored = 0;
  const auto step = [&] {
    const StepMessage message = batcher.plan(now, sampling_inputs, outbox);
    if (message.entries.empty()) return;
    std::vector<SamplerOutput> sampled;
    std::vector<PromptToken> tokens;
    for (const StepEntry& entry : message.entries) {
      if (entry.output_kind != OutputKind::None) sampled.push_back({{Token{1, 0, {}}}, {}});
      for (const int32_t id : entry.scored) tokens.push_back({Token{id, 0, {}}, 1});
    }
    scored += tokens.size();
    batcher.apply(sampled, now, outbox, std::move(tokens));
  };
  std::vector<int32_t> ids;
  const auto collect = [&](const Event& event) {
    if (!event.prompt_tokens) return;
    for (const auto& [token, rank] : *event.prompt_tokens) ids.push_back(token.id);
  };
  batcher.enqueue(batcher.make(request_of("grows", prompt_of(1, 15), 40), [](const Event&) {}, now));
  step();
  Request request = request_of("scored", prompt_of(2, 64), 2);
  request.prompt_logprobs = 0;
  batcher.enqueue(batcher.make(std::move(request), collect, now));
  for (int i = 0; i < 200; ++i) {
    step();
    for (auto& [listener, event] : std::exchange(outbox, {})) (*listener)(event);
  }
  EXPECT_GT(batcher.statistics().preempted, 0);
  EXPECT_GT(scored, 63U) << "some tokens are scored twice";
  const auto prompt = prompt_of(2, 64);
  EXPECT_EQ(ids, std::vector<int32_t>(prompt.begin() + 1, prompt.end()));
}

TEST(PromptScores, AreRefusedWhereTheyCannotBeHad) {
  const auto refusal = [](const Limits& limits, SearchParams search, Arrays source = {}) -> std::string {
    Request request = request_of("a", {1, 2}, 3, search);
    request.prompt_logprobs = 1;
    request.source = std::move(source);
    try {
      Batcher(limits).make(std::move(request), [](const Event&) {}, {});
    } catch (const Error& error) {
      EXPECT_EQ(error.reason, Reason::InvalidRequest);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(limits_of(40), {}), "");
  EXPECT_EQ(refusal(limits_of(40), {.num_beams = 2}),
            "prompt_logprobs cannot be combined with num_beams 2; set num_beams to 1 or omit prompt_logprobs");
  Limits reads = limits_of(40), whole = limits_of(40);
  reads.decoder_start = 0;
  EXPECT_THAT(refusal(reads, {}), testing::HasSubstr("reads the prompt by an encoder"));
  whole.recomputes = true;
  EXPECT_THAT(refusal(whole, {}), testing::HasSubstr("from its beginning for every token"));
}

}  // namespace
}  // namespace pm::engine
