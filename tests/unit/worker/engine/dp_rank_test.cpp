// SPDX-License-Identifier: Apache-2.0
// Tests of data-parallel ranks with one to four pipeline stages and several steps in flight.
#include "tests/unit/worker/engine/staged_dp_rank.h"

namespace pm::engine {
namespace {

class Stages : public testing::TestWithParam<int> {
 protected:
  Limits limits(int64_t blocks, int64_t concurrency, int64_t queue = 256, int64_t step_tokens = 32) const {
    Limits limits{.vocabulary = vocabulary,
                  .positions = 512,
                  .kv_blocks = blocks,
                  .max_concurrency = concurrency,
                  .max_queue = queue,
                  .step_tokens = step_tokens};
    limits.pipeline_batches = GetParam();
    return limits;
  }
};
INSTANTIATE_TEST_SUITE_P(DpRank, Stages, testing::Values(1, 2, 3, 4),
                         [](const auto& info) { return std::to_string(info.param) + "_stages"; });

Request request_of(const std::string& id, std::vector<int32_t> prompt, int64_t count, SamplingParams sampling = {},
                   SearchParams search = {}) {
  return {id, std::move(prompt), count, std::move(sampling), {}, true, search};
}

TEST_P(Stages, EveryAnswerBelongsToItsRequestWhenFiftyShareTenSlotsAndFewBlocks) {
  StagedDpRank staged(GetParam(), 40);
  Scheduler scheduler(staged.dp_rank(), limits(40, 10));
  std::vector<Stream> streams(50);
  for (int i = 0; i < 50; ++i) {
    scheduler.submit(request_of(std::to_string(i), prompt_of(i, 1 + static_cast<size_t>(i * 3 % 90)), 1 + i % 20,
                                {i % 3 == 0, 1, 0, 1, 5}),
                     [&stream = streams[static_cast<size_t>(i)]](const Event& event) { stream(event); });
  }
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(streams[static_cast<size_t>(i)].wait(), Finish::Length);
    EXPECT_EQ(streams[static_cast<size_t>(i)].tokens,
              expected(prompt_of(i, 1 + static_cast<size_t>(i * 3 % 90)), 1 + i % 20))
        << i;
  }
  EXPECT_EQ(scheduler.statistics().kv_blocks_used, 0);
}

TEST_P(Stages, PreemptionLosesNoToken) {
  StagedDpRank staged(GetParam(), 12);
  Scheduler scheduler(staged.dp_rank(), limits(12, 6));
  std::vector<Stream> streams(8);
  for (int i = 0; i < 8; ++i) {
    scheduler.submit(request_of(std::to_string(i), prompt_of(i, 10), 60),
                     [&stream = streams[static_cast<size_t>(i)]](const Event& event) { stream(event); });
  }
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(streams[static_cast<size_t>(i)].wait(), Finish::Length);
    EXPECT_EQ(streams[static_cast<size_t>(i)].tokens, expected(prompt_of(i, 10), 60)) << i;
  }
  EXPECT_GT(scheduler.statistics().preempted, 0);
  EXPECT_EQ(scheduler.statistics().kv_blocks_used, 0);
}

TEST_P(Stages, SequencesOfOneRequestForkAfterThePrompt) {
  StagedDpRank staged(GetParam(), 60);
  Scheduler scheduler(staged.dp_rank(), limits(60, 8));
  std::mutex mutex;
  std::condition_variable done;
  std::vector<std::vector<int32_t>> sequences(4);
  size_t open = sequences.size();
  scheduler.submit(request_of("four", prompt_of(3, 37), 25, {true, 1, 0, 1, 9}, {.num_return_sequences = 4}),
                   [&](const Event& event) {
                     std::lock_guard lock(mutex);
                     for (const Token& token : event.tokens)
                       sequences[static_cast<size_t>(event.sequence)].push_back(token.id);
                     if (event.finish != Finish::None && --open == 0) done.notify_all();
                   });
  std::unique_lock lock(mutex);
  ASSERT_TRUE(done.wait_for(lock, std::chrono::seconds(60), [&] { return open == 0; }));
  for (const auto& sequence : sequences) EXPECT_EQ(sequence, expected(prompt_of(3, 37), 25));
}

TEST_P(Stages, CancelledRequestsDoNotAffectOthers) {
  StagedDpRank staged(GetParam(), 60, std::chrono::microseconds(200));
  Scheduler scheduler(staged.dp_rank(), limits(60, 12));
  std::vector<Stream> streams(24);
  for (int i = 0; i < 24; ++i) {
    scheduler.submit(request_of(std::to_string(i), prompt_of(i, 20), i % 2 ? 400 : 40),
                     [&stream = streams[static_cast<size_t>(i)]](const Event& event) { stream(event); });
  }
  for (int i = 1; i < 24; i += 2) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    scheduler.cancel(std::to_string(i));
  }
  for (int i = 0; i < 24; ++i) {
    const Finish finish = streams[static_cast<size_t>(i)].wait();
    const std::vector<int32_t> whole = expected(prompt_of(i, 20), i % 2 ? 400 : 40);
    const std::vector<int32_t>& tokens = streams[static_cast<size_t>(i)].tokens;
    EXPECT_EQ(finish, i % 2 ? Finish::Cancelled : Finish::Length) << i;
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), whole.begin())) << i;
  }
  EXPECT_EQ(scheduler.statistics().kv_blocks_used, 0);
}

TEST_P(Stages, ForwardRequestsRunInMicroBatchesAndAreJoined) {
  StagedDpRank staged(GetParam(), 8);
  Limits some = limits(8, 4);
  some.micro_batches = 5;
  Scheduler scheduler(staged.dp_rank(), some);
  Array ids{{7, 3}, std::vector<int64_t>(21)}, twice = ids;
  for (int64_t i = 0; i < 21; ++i)
    std::get<0>(ids.values)[static_cast<size_t>(i)] = i, std::get<0>(twice.values)[static_cast<size_t>(i)] = 2 * i;
  for (const bool apart : {false, true}) {
    std::promise<ForwardResult> done;
    scheduler.forward({.id = "a", .inputs = {{"input_ids", ids}}, .outputs = {}, .by_micro_batch = apart},
                      [&](ForwardResult result) { done.set_value(std::move(result)); });
    const ForwardResult result = done.get_future().get();
    ASSERT_EQ(result.finish, Finish::Stop);
    if (!apart) {
      EXPECT_EQ(result.outputs, (Arrays{{"logits", twice}}));
      continue;
    }
    ASSERT_EQ(result.outputs.size(), 4u);  // rows 2, 2, 2, 1: a fifth micro-batch would be empty
    EXPECT_EQ(result.outputs.at("micro_batches.3.logits").shape, (std::vector<int64_t>{1, 3}));
  }
  EXPECT_EQ(staged.last().forwards, 8);
}

TEST_P(Stages, AStageThatFailsFailsEveryRequestOnce) {
  StagedDpRank staged(GetParam(), 60);
  Scheduler scheduler(staged.dp_rank(), limits(60, 12));
  std::vector<Stream> streams(6);
  for (int i = 0; i < 6; ++i) {
    scheduler.submit(request_of(std::to_string(i), prompt_of(i, 20), 400),
                     [&stream = streams[static_cast<size_t>(i)]](const Event& event) { stream(event); });
  }
  while (scheduler.statistics().generation_tokens < 50) std::this_thread::yield();
  staged.last().fail = true;
  for (auto& stream : streams) EXPECT_EQ(stream.wait(), Finish::Failed);
  EXPECT_TRUE(scheduler.failed());
}

}  // namespace
}  // namespace pm::engine
