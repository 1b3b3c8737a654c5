// SPDX-License-Identifier: Apache-2.0
// Tests generation without a KV cache: each step has whole sequences and no blocks. The executor sums the tokens that
// it is given, so that the answer itself shows one that is missing.
#include <gmock/gmock.h>

#include "tests/unit/worker/engine/summing_executor.h"
#include "worker/engine/scheduling/batcher.h"

namespace pm::engine {
namespace {

constexpr int32_t appended = 5;

Limits limits_of(int64_t step_tokens, int64_t concurrency = 8) {
  return {.vocabulary = vocabulary,
          .positions = 60,
          .kv_blocks = 0,
          .max_concurrency = concurrency,
          .max_queue = 100,
          .step_tokens = step_tokens,
          .recomputes = true,
          .appended = appended};
}

/// Returns the token after `tokens` and the appended one.
int32_t next_of(std::vector<int32_t> tokens) {
  tokens.push_back(appended);
  return static_cast<int32_t>(sum_of(tokens) % vocabulary);
}

std::vector<int32_t> answer_to(std::vector<int32_t> tokens, size_t count) {
  std::vector<int32_t> answer;
  while (answer.size() < count) {
    answer.push_back(next_of(tokens));
    tokens.push_back(answer.back());
  }
  return answer;
}

/// Runs a batcher by hand; each of its steps is kept.
struct Steps {
  explicit Steps(const Limits& limits) : batcher(limits) {}

  void submit(const std::string& id, std::vector<int32_t> prompt, int64_t count, SearchParams search = {}) {
    Request request{.id = id, .prompt = std::move(prompt), .max_new_tokens = count, .search = search};
    batcher.enqueue(batcher.make(std::move(request),
                                 [this, id](const Event& event) {
                                   for (const Token& token : event.tokens)
                                     answers[id + std::to_string(event.sequence)].push_back(token.id);
                                   scores[id + std::to_string(event.sequence)] = event.score;
                                 },
                                 {}));
  }
  /// Runs one step, whose results are those of the sums.
  void step() {
    Outbox outbox;
    std::vector<SamplingInput> inputs;
    messages.push_back(batcher.plan({}, inputs, outbox));
    std::vector<SamplerOutput> results;
    size_t input = 0;
    for (const StepEntry& entry : messages.back().entries) {
      const auto best = static_cast<int32_t>(sum_of(entry.tokens) % vocabulary);
      SamplerOutput& result = results.emplace_back();
      if (entry.output_kind == OutputKind::Argmax) {
        result.tokens = {{best, 0, {}}};
        continue;
      }
      const Beams& beams = *inputs.at(input++).beams;
      for (size_t beam = 0; beam < beams.scores.size(); ++beam)
        for (int32_t other = 0; other < static_cast<int32_t>(beams.num_candidates); ++other) {
          const float score = beams.scores[beam] - static_cast<float>(other);
          result.candidates.push_back({beams.first + static_cast<int64_t>(beam),
                                       (best + other) % static_cast<int32_t>(vocabulary), score, score});
        }
    }
    batcher.apply(results, {}, outbox);
    for (auto& [listener, event] : outbox) (*listener)(event);
  }
  void run() {
    while (!batcher.idle()) step();
  }

  Batcher batcher;
  std::vector<StepMessage> messages;
  std::map<std::string, std::vector<int32_t>> answers;
  std::map<std::string, double> scores;
};

TEST(WholeSequences, EachStepHasThemAndTheAppendedTokenAndNoBlocks) {
  Steps steps(limits_of(64));
  steps.submit("a", {1, 2, 3}, 3);
  steps.submit("b", {9}, 2);
  steps.run();
  EXPECT_EQ(steps.answers["a0"], answer_to({1, 2, 3}, 3));
  EXPECT_EQ(steps.answers["b0"], answer_to({9}, 2));
  ASSERT_EQ(steps.messages.size(), 3u);
  const std::vector<StepEntry>& second = steps.messages[1].entries;
  ASSERT_EQ(second.size(), 2u);
  EXPECT_EQ(second[0].tokens, (std::vector<int32_t>{1, 2, 3, next_of({1, 2, 3}), appended}));
  EXPECT_EQ(second[1].tokens, (std::vector<int32_t>{9, next_of({9}), appended}));
  for (const StepMessage& message : steps.messages) {
    EXPECT_TRUE(message.block_copies.empty() && message.freed_slots.empty());
    for (const StepEntry& entry : message.entries) EXPECT_TRUE(entry.context == 0 && entry.blocks.empty());
    EXPECT_EQ(message.entries[0].prompt, 3) << "however many tokens were generated";
  }
  EXPECT_EQ(steps.batcher.statistics().prefix_tokens, 0);
}

TEST(WholeSequences, WithoutAnAppendedTokenAStepHasTheSequenceAlone) {
  Limits limits = limits_of(64);
  limits.appended.reset();
  Steps steps(limits);
  steps.submit("a", {4, 7}, 1);
  steps.run();
  EXPECT_EQ(steps.messages[0].entries[0].tokens, (std::vector<int32_t>{4, 7}));
  EXPECT_EQ(steps.answers["a0"], std::vector<int32_t>{static_cast<int32_t>(sum_of(std::vector<int32_t>{4, 7}))});
}

TEST(WholeSequences, AStepHasAsManyAsItsBudgetAndALongerOneAlone) {
  Steps steps(limits_of(20));
  steps.submit("long", prompt_of(1, 30), 2);
  steps.submit("b", prompt_of(2, 9), 2);
  steps.submit("c", prompt_of(3, 9), 2);
  steps.run();
  for (const StepMessage& message : steps.messages) {
    int64_t rows = 0;
    for (const StepEntry& entry : message.entries) rows += static_cast<int64_t>(entry.tokens.size());
    EXPECT_TRUE(rows <= 20 || message.entries.size() == 1) << rows;
  }
  EXPECT_EQ(steps.messages[2].entries.size(), 2u) << "the short ones beside each other";
  EXPECT_EQ(steps.answers["long0"], answer_to(prompt_of(1, 30), 2));
  EXPECT_EQ(steps.answers["b0"], answer_to(prompt_of(2, 9), 2));
  EXPECT_EQ(steps.answers["c0"], answer_to(prompt_of(3, 9), 2));
}

TEST(WholeSequences, BeamsThatAreSpreadOverStepsEqualThoseOfOneStep) {
  const SearchParams search{.num_beams = 4, .num_return_sequences = 4, .length_penalty = 0};
  Steps one(limits_of(400)), several(limits_of(20));
  for (Steps* steps : {&one, &several}) {
    steps->submit("a", prompt_of(3, 7), 6, search);
    steps->submit("b", prompt_of(4, 5), 5, search);
    steps->run();
  }
  EXPECT_GT(several.messages.size(), one.messages.size());
  EXPECT_EQ(one.answers["a0"], answer_to(prompt_of(3, 7), 6)) << "the most likely one";
  EXPECT_EQ(one.answers, several.answers);
  EXPECT_EQ(one.scores, several.scores);
}

TEST(WholeSequences, AnswersOfAWholeEngineAreThoseOfTheSums) {
  Limits limits = limits_of(40, 3);  // fewer at once than requests
  Fixture f(limits);
  f.executor->has_cache = false;
  std::vector<Stream> streams(8);
  for (int i = 0; i < 8; ++i)
    f.submit(std::to_string(i), prompt_of(i, 3 + static_cast<size_t>(i)), 20 + i, streams[static_cast<size_t>(i)]);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(streams[static_cast<size_t>(i)].wait(), Finish::Length);
    EXPECT_EQ(streams[static_cast<size_t>(i)].tokens,
              answer_to(prompt_of(i, 3 + static_cast<size_t>(i)), 20 + static_cast<size_t>(i)));
  }
  EXPECT_EQ(f.scheduler.statistics().finished, 8);
}

TEST(WholeSequences, ARequestBeyondThePositionsIsRefused) {
  Steps steps(limits_of(20));
  steps.submit("fits", prompt_of(1, 50), 10);
  try {
    steps.submit("long", prompt_of(1, 50), 11);
    FAIL() << "51 + 10 tokens are more than 60";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("exceeds the maximum of 60 tokens per sequence"));
  }
}

TEST(WholeSequences, OfStepsThatOverlapHaveTwoRowsOfEachTokenBehindThePromptButTheLast) {
  Limits limits = limits_of(/*step_tokens=*/24);
  limits.overlap = true;
  Steps steps(limits);
  steps.submit("a", {1, 2, 3}, 3);
  steps.submit("b", prompt_of(2, 16), 3);
  steps.run();
  const int32_t first = steps.answers["a0"][0], second = steps.answers["a0"][1];
  EXPECT_EQ(steps.messages[0].entries[0].tokens, (std::vector<int32_t>{1, 2, 3, appended}));
  EXPECT_EQ(steps.messages[1].entries[0].tokens, (std::vector<int32_t>{1, 2, 3, 3, first, appended}));
  EXPECT_EQ(steps.messages[2].entries[0].tokens, (std::vector<int32_t>{1, 2, 3, 3, first, first, second, appended}));
  EXPECT_EQ(steps.messages[0].entries.size(), 2U) << "4 and 17 rows";
  EXPECT_EQ(steps.messages[1].entries.size(), 1U) << "6 and 19 rows";
  EXPECT_EQ(steps.messages[2].entries[0].prompt, 3);
}

TEST(WholeSequences, RowsOfAMemoryCountAsTokensOfAStep) {
  Limits limits = limits_of(/*step_tokens=*/60);
  limits.memory = 20;
  Steps steps(limits);
  for (const char* id : {"a", "b", "c"}) steps.submit(id, {1, 2, 3}, 2);
  steps.step();
  EXPECT_EQ(steps.messages[0].entries.size(), 2U) << "two of 20 + 3 + 1 rows";
}

}  // namespace
}  // namespace pm::engine
