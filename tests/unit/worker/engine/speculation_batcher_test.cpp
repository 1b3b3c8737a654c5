// SPDX-License-Identifier: Apache-2.0
// Tests which entries of a step have drafts, what blocks and rows they take, and what becomes of them.
#include <gmock/gmock.h>

#include "tests/unit/worker/engine/replies.h"

namespace pm::engine {
namespace {

using testing::ElementsAre;

const Speculation how{8, [] { return ngram_drafter({2, 4}); }};
constexpr int32_t other = 90;  ///< a token that no draft proposes

/// A batcher whose ranks answer what a test says.
struct Steps {
  explicit Steps(int64_t kv_blocks, int64_t step_tokens = 64, int64_t max_concurrency = 8,
                 const Speculation& speculation = how)
      : batcher({.vocabulary = vocabulary,
                 .positions = 512,
                 .kv_blocks = kv_blocks,
                 .max_concurrency = max_concurrency,
                 .max_queue = 100,
                 .step_tokens = step_tokens,
                 .speculation = speculation}) {}
  void submit(Request request) {
    batcher.enqueue(batcher.make(std::move(request), [](const Event&) {}, {}));
  }
  const std::vector<StepEntry>& plan() {
    sampling_inputs.clear();
    message = batcher.plan({}, sampling_inputs, outbox);
    return message.entries;
  }
  /// Accepts `count` drafts of each entry, and then `next`.
  void answer(size_t count, int32_t next = other) {
    std::vector<SamplerOutput> outputs;
    for (const StepEntry& entry : message.entries) {
      if (entry.output_kind == OutputKind::None) continue;
      SamplerOutput output;
      const auto drafts = static_cast<size_t>(entry.drafts);
      for (size_t i = 0; i < std::min(count, drafts); ++i)
        output.tokens.push_back({entry.tokens[entry.tokens.size() - drafts + i], 0, {}});
      output.tokens.push_back({next, 0, {}});
      outputs.push_back(std::move(output));
    }
    batcher.apply(outputs, {}, outbox);
  }
  Batcher batcher;
  Outbox outbox;
  std::vector<SamplingInput> sampling_inputs;
  StepMessage message;
};

/// A prompt of a period, whose first answer is its next token `next`.
std::vector<int32_t> periodic(int64_t length, int32_t& next, int32_t first = 1) {
  std::vector<int32_t> prompt;
  for (int64_t i = 0; i < length; ++i) prompt.push_back(first + static_cast<int32_t>(i % 5));
  next = first + static_cast<int32_t>(length % 5);
  return prompt;
}

TEST(DraftPlan, HasTheDraftsBehindTheNextTokenAndTheirBlocks) {
  Steps steps(10);
  int32_t next = 0;
  steps.submit(request_of("a", periodic(28, next), 40));
  EXPECT_EQ(steps.plan().at(0).drafts, 0) << "the first token of an answer is not drafted";
  steps.answer(0, next);
  const StepEntry entry = steps.plan().at(0);
  EXPECT_THAT(entry.tokens, ElementsAre(4, 5, 1, 2, 3, 4, 5)) << "0.8^6 is worth a row";
  EXPECT_EQ(entry.drafts, 6);
  EXPECT_EQ(entry.context, 28);
  EXPECT_EQ(entry.blocks.size(), 1) << "of tokens 32, 33 and 34";
  EXPECT_EQ(steps.batcher.statistics().kv_blocks_used, 3);
  steps.answer(6);
  const StepEntry after = steps.plan().at(0);
  EXPECT_EQ(after.context, 35);
  EXPECT_THAT(after.tokens, ElementsAre(other)) << "a new token, behind which nothing is known";
  EXPECT_FALSE(after.reset_table);
  EXPECT_EQ(steps.batcher.statistics().accepted_tokens, 6);
}

TEST(DraftPlan, GivesTheBlocksOfRejectedDraftsBack) {
  Steps steps(10);
  int32_t next = 0;
  steps.submit(request_of("a", periodic(28, next), 40));
  steps.plan();
  steps.answer(0, next);
  steps.plan();
  EXPECT_EQ(steps.batcher.statistics().kv_blocks_used, 3);
  steps.answer(1);
  EXPECT_EQ(steps.batcher.statistics().kv_blocks_used, 2);
  const StepEntry entry = steps.plan().at(0);
  EXPECT_EQ(entry.context, 30) << "one draft and the token before it are computed";
  EXPECT_THAT(entry.tokens, ElementsAre(other));
  EXPECT_TRUE(entry.reset_table);
  EXPECT_EQ(entry.blocks.size(), 2);
  steps.answer(0);
  EXPECT_EQ(steps.batcher.statistics().accepted_tokens, 1);
}

TEST(DraftPlan, TakesNoBlockThatASequenceNeedsForItsNextToken) {
  Steps steps(5);
  int32_t next = 0;
  steps.submit(request_of("a", periodic(31, next), 30));
  steps.submit(request_of("b", periodic(31, next, 11), 30));
  steps.plan();
  steps.answer(0, next - 10);
  const auto& entries = steps.plan();
  ASSERT_EQ(entries.size(), 2);
  EXPECT_EQ(entries[0].drafts, 0) << "token 32 is the first of a block, and one is left for two sequences";
  EXPECT_EQ(steps.batcher.statistics().preempted, 0);
}

TEST(DraftPlan, SharesTheRowsOfSamplingAndOfTheBudgetEvenly) {
  Steps steps(200, 512, 8);
  std::vector<int32_t> nexts(8);
  for (int i = 0; i < 8; ++i)
    steps.submit(request_of(std::to_string(i), periodic(20, nexts[static_cast<size_t>(i)], 1 + 10 * i), 60));
  steps.plan();
  std::vector<SamplerOutput> outputs;
  for (const int32_t next : nexts) outputs.push_back({{{next, 0, {}}}, {}, {}});
  steps.batcher.apply(outputs, {}, steps.outbox);
  const auto& entries = steps.plan();
  ASSERT_EQ(entries.size(), 8);
  for (const StepEntry& entry : entries) EXPECT_EQ(entry.drafts, 3) << "32 rows less 8, for 8 sequences";
}

TEST(DraftPlan, LeavesTheBudgetToTheNextTokens) {
  Steps steps(200, 6);
  int32_t next = 0;
  steps.submit(request_of("a", periodic(6, next), 60));
  steps.plan();
  steps.answer(0, next);
  steps.submit(request_of("b", periodic(20, next, 11), 60));
  const auto& entries = steps.plan();
  ASSERT_EQ(entries.size(), 2);
  size_t tokens = 0;
  for (const StepEntry& entry : entries) tokens += entry.tokens.size();
  EXPECT_LE(tokens, 6);
  EXPECT_LE(entries[0].drafts, 2);
}

TEST(DraftPlan, HasNoMoreRowsThanHaveEqualBitsAndNoDraftsBesidePrompts) {
  Speculation bounded = how;
  bounded.step_rows = 12;
  Steps steps(200, 512, 16, bounded);
  int32_t next = 0;
  steps.submit(request_of("a", periodic(20, next), 60));
  steps.plan();
  steps.answer(0, next);
  steps.submit(request_of("b", periodic(20, next, 11), 60));
  const auto& beside = steps.plan();
  ASSERT_EQ(beside.size(), 2);
  EXPECT_EQ(beside[0].drafts, 0) << "the rows of the prompt are more than twelve";
  steps.answer(0, 2);
  const auto rows_of = [&] {
    int64_t rows = 0, drafts = 0;
    for (const StepEntry& entry : steps.plan()) rows += 1 + entry.drafts, drafts += entry.drafts;
    EXPECT_TRUE(drafts == 0 || rows <= 12) << drafts << " drafts in " << rows << " rows";
    return drafts;
  };
  EXPECT_GT(rows_of(), 0);
  steps.answer(8);
  for (int i = 0; i < 11; ++i) steps.submit(request_of(std::to_string(i), periodic(20, next, 1 + 6 * (i % 3)), 60));
  steps.plan();
  steps.answer(0, next);
  EXPECT_EQ(rows_of(), 0);
  EXPECT_EQ(steps.message.entries.size(), 13);
}

TEST(DraftPlan, DraftsForPreparedSamplesWithTheirOwnNumberAndPosition) {
  Batcher batcher({.vocabulary = vocabulary,
                   .positions = 512,
                   .kv_blocks = 40,
                   .max_concurrency = 8,
                   .max_queue = 100,
                   .step_tokens = 64,
                   .device_sampling = true,
                   .speculation = how});
  int32_t next = 0;
  Request request = request_of("a", periodic(20, next), 60, {.num_return_sequences = 2});
  request.sampling = {.do_sample = true, .seed = 7, .presence_penalty = 1};
  batcher.enqueue(batcher.make(std::move(request), [](const Event&) {}, {}));
  std::vector<SamplingInput> inputs;
  Outbox outbox;
  EXPECT_EQ(batcher.plan({}, inputs, outbox).entries.at(0).drafts, 0);
  batcher.apply({{{{next, 0, {}}, {next, 0, {}}}, {}, {}}}, {}, outbox);
  const StepMessage message = batcher.plan({}, inputs, outbox);
  ASSERT_EQ(message.entries.size(), 2);
  for (uint64_t number = 0; number < 2; ++number) {
    const StepEntry& entry = message.entries[number];
    ASSERT_GT(entry.drafts, 1);
    ASSERT_EQ(entry.draft_sampling.size(), static_cast<size_t>(entry.drafts));
    EXPECT_EQ(entry.device_sampling.params.position, 21);
    EXPECT_EQ(entry.device_sampling.edits.size(), 1) << "the token of the answer";
    for (size_t i = 0; i < entry.draft_sampling.size(); ++i) {
      const DeviceSampling& one = entry.draft_sampling[i];
      EXPECT_EQ(one.params.sequence, number);
      EXPECT_EQ(one.params.position, 22 + i);
      EXPECT_EQ(one.params.seed, 7);
      EXPECT_EQ(one.num_samples, 1);
      EXPECT_EQ(one.edits.size(), std::min<size_t>(5, 2 + i)) << "of the answer and the drafts before";
    }
  }
  EXPECT_EQ(decode(encode(message)), message);
}

TEST(DraftPlan, PausesASequenceWhoseDraftsAreRejected) {
  Steps steps(40);
  int32_t next = 0;
  steps.submit(request_of("a", periodic(60, next), 200));
  steps.plan();
  steps.answer(0, next);
  int64_t drafted = 0, paused = 0;
  for (int i = 0; i < 60; ++i) {
    const bool drafts = steps.plan().at(0).drafts > 0;
    drafted += drafts;
    paused += !drafts;
    // each answer goes on with the period, and then contradicts the draft with its next token but one
    const std::vector<int32_t>& tokens = steps.message.entries[0].tokens;
    steps.answer(0, tokens[0] % 5 + 1 == 5 ? 1 : tokens[0] % 5 + 2);
  }
  EXPECT_GT(steps.batcher.statistics().draft_pauses, 1);
  EXPECT_GT(paused, 24);
  EXPECT_LT(drafted, 20);
}

TEST(DraftPlan, DiscardsTheDraftsOfACancelledRequest) {
  Steps steps(40);
  int32_t next = 0;
  steps.submit(request_of("a", periodic(28, next), 60));
  steps.plan();
  steps.answer(0, next);
  EXPECT_GT(steps.plan().at(0).drafts, 0);
  steps.batcher.cancel("a");
  steps.batcher.drop_cancelled(steps.outbox);
  steps.answer(3);
  EXPECT_EQ(steps.batcher.statistics().kv_blocks_used, 0);
  EXPECT_EQ(steps.batcher.statistics().accepted_tokens, 0);
  EXPECT_TRUE(steps.batcher.idle());
}

}  // namespace
}  // namespace pm::engine
