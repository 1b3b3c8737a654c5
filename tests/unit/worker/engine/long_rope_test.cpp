// SPDX-License-Identifier: Apache-2.0
// LongRoPE: sequences that grow beyond the original length are computed again, and share no keys with shorter ones. The
// executor counts one more for each token of a long sequence, so that the answer itself shows a key of the other kind.
#include <gmock/gmock.h>

#include "tests/unit/worker/engine/summing_executor.h"

namespace pm::engine {
namespace {

constexpr int64_t most = 40;  // tokens of a short sequence

/// Returns the answer to `tokens` where each token of a sequence beyond `most` counts one more.
std::vector<int32_t> expected_beyond(std::vector<int32_t> tokens, int64_t count) {
  const size_t prompt = tokens.size();
  for (int64_t i = 0; i < count; ++i) {
    const auto length = static_cast<int64_t>(tokens.size());
    tokens.push_back(static_cast<int32_t>((sum_of(tokens) + (length > most ? length : 0)) % vocabulary));
  }
  return {tokens.begin() + static_cast<std::ptrdiff_t>(prompt), tokens.end()};
}

Limits limits_of(int64_t blocks, int64_t step_tokens = 64) {
  Limits limits{.vocabulary = vocabulary,
                .positions = 512,
                .kv_blocks = blocks,
                .max_concurrency = 8,
                .max_queue = 100,
                .step_tokens = step_tokens};
  limits.short_rope_tokens = most;
  return limits;
}

TEST(LongRope, ASequenceThatOutgrowsTheShortFactorsIsComputedAgain) {
  Fixture f(limits_of(60));
  std::vector<Stream> streams(5);
  const size_t lengths[] = {1, 30, 39, 40, 41};
  for (size_t i = 0; i < 5; ++i)
    f.submit(std::to_string(i), prompt_of(static_cast<int>(i), lengths[i]), 50, streams[i]);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(streams[i].wait(), Finish::Length);
    EXPECT_EQ(streams[i].tokens, expected_beyond(prompt_of(static_cast<int>(i), lengths[i]), 50)) << lengths[i];
  }
  EXPECT_EQ(f.scheduler.statistics().kv_blocks_used, 0);
}

TEST(LongRope, AChunkOfALongPromptKnowsThatThePromptIsLong) {
  Fixture f(limits_of(60, /*step_tokens=*/7));
  Stream stream;
  f.submit("long", prompt_of(3, 100), 5, stream);
  stream.wait();
  EXPECT_EQ(stream.tokens, expected_beyond(prompt_of(3, 100), 5));
}

TEST(LongRope, LongAndShortSequencesShareNoPrefix) {
  Fixture f(limits_of(60));
  const auto text = prompt_of(5, 64);
  const auto ask = [&](size_t length, int64_t count) {
    const std::vector<int32_t> prompt(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(length));
    Stream stream;
    f.submit(std::to_string(length), prompt, count, stream);
    stream.wait();
    EXPECT_EQ(stream.tokens, expected_beyond(prompt, count)) << length;
    return f.scheduler.statistics().prefix_hit_tokens;
  };
  EXPECT_EQ(ask(36, 2), 0);
  EXPECT_EQ(ask(64, 3), 0) << "the keys of the first are short";
  EXPECT_EQ(ask(64, 3), 48);
  EXPECT_EQ(ask(36, 2), 48 + 32);
  EXPECT_EQ(ask(36, 20), 48 + 64) << "then it is computed again, from the blocks of the long ones";
}

TEST(LongRope, SamplesCrossTogetherAlsoWhereBlocksRunOut) {
  for (const int64_t blocks : {60, 13}) {
    Fixture f(limits_of(blocks));
    std::vector<std::vector<int32_t>> answers(3);
    std::promise<void> ended;
    int open = 3;
    Stream other;
    f.submit("other", prompt_of(9, 20), 70, other);
    Request request{.id = "samples", .prompt = prompt_of(2, 30), .max_new_tokens = 25, .sampling = {}, .eos = {}};
    request.search.num_return_sequences = 3;
    f.scheduler.submit(std::move(request), [&](const Event& event) {
      for (const Token& token : event.tokens) answers[static_cast<size_t>(event.sequence)].push_back(token.id);
      if (event.finish != Finish::None && --open == 0) ended.set_value();
    });
    ASSERT_EQ(ended.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
    for (const auto& answer : answers) EXPECT_EQ(answer, expected_beyond(prompt_of(2, 30), 25)) << blocks;
    other.wait();
    EXPECT_EQ(other.tokens, expected_beyond(prompt_of(9, 20), 70)) << blocks;
  }
}

}  // namespace
}  // namespace pm::engine
