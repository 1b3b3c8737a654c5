// SPDX-License-Identifier: Apache-2.0
// Recurrent layers: a sequence goes on from the state of its slot, and nothing of it is read from blocks. The executor
// keeps sums by slots, so that the answer itself shows a state of another sequence, or of another length.
#include <gmock/gmock.h>

#include "tests/unit/worker/engine/replies.h"

namespace pm::engine {
namespace {

Limits limits_of(int64_t blocks, int64_t step_tokens = 64) {
  Limits limits{.vocabulary = vocabulary,
                .positions = 512,
                .kv_blocks = blocks,
                .max_concurrency = 16,
                .max_queue = 100,
                .step_tokens = step_tokens};
  limits.recurrent = true;
  return limits;
}

TEST(Recurrent, PromptsInChunksGoOnFromTheirStates) {
  Fixture f(limits_of(60, /*step_tokens=*/7));
  std::vector<Stream> streams(4);
  for (size_t i = 0; i < 4; ++i)
    f.submit(std::to_string(i), prompt_of(static_cast<int>(i), 5 + 20 * i), 20, streams[i]);
  for (size_t i = 0; i < 4; ++i) {
    streams[i].wait();
    EXPECT_EQ(streams[i].tokens, expected(prompt_of(static_cast<int>(i), 5 + 20 * i), 20));
  }
  EXPECT_EQ(f.scheduler.statistics().kv_blocks_used, 0);
}

TEST(Recurrent, NothingComesFromCachedPrefixes) {
  Fixture f(limits_of(60));
  for (int i = 0; i < 2; ++i) {
    Replies replies(1);
    submit(f, request_of(std::to_string(i), prompt_of(1, 70), 5), replies);
    replies.wait();
    EXPECT_EQ(replies.cached, 0);
    EXPECT_EQ(replies.tokens[0], expected(prompt_of(1, 70), 5));
  }
  EXPECT_EQ(f.scheduler.statistics().prefix_hit_tokens, 0);
}

TEST(Recurrent, SamplesBeginWithTheStateOfTheirPrompt) {
  Fixture f(limits_of(60));
  Replies replies(5);
  submit(f, request_of("samples", prompt_of(2, 30), 25, {.num_return_sequences = 5}), replies);
  replies.wait();
  for (const auto& answer : replies.tokens) EXPECT_EQ(answer, expected(prompt_of(2, 30), 25));
  EXPECT_EQ(f.executor->state_copies, 4);
}

TEST(Recurrent, BeamsHaveTheStatesOfTheirParents) {
  Fixture f(limits_of(60));
  f.executor->sharpness = 2;
  Replies replies(5);
  submit(f, request_of("beams", prompt_of(3, 23), 25, {.num_beams = 5, .num_return_sequences = 5, .length_penalty = 0}),
         replies);
  replies.wait();
  for (size_t i = 0; i < 5; ++i)
    EXPECT_NEAR(replies.scores[i], log_probability(*f.executor, prompt_of(3, 23), replies.tokens[i]), 1e-3) << i;
  EXPECT_EQ(replies.tokens[0], expected(prompt_of(3, 23), 25)) << "the most likely answer";
}

TEST(Recurrent, PreemptedSequencesAreComputedAgainFromTheirBeginnings) {
  Fixture f(limits_of(24));
  expect_preemption_changes_no_answer(f);
}

}  // namespace
}  // namespace pm::engine
