// SPDX-License-Identifier: Apache-2.0
// Tests of the scheduler's thread, its queues and forward requests.
#include <gmock/gmock.h>

#include "planner/memory.h"
#include "tests/unit/worker/engine/summing_executor.h"

namespace pm::engine {
namespace {

TEST(Scheduler, EveryAnswerBelongsToItsRequestWhenFiftyShareTenSlotsAndFewBlocks) {
  Fixture f({.vocabulary = vocabulary,
             .positions = 512,
             .kv_blocks = 40,
             .max_concurrency = 10,
             .max_queue = 100,
             .step_tokens = 32});
  std::vector<Stream> streams(50);
  for (int i = 0; i < 50; ++i) {
    f.submit(std::to_string(i), prompt_of(i, 1 + static_cast<size_t>(i * 3 % 90)), 1 + i % 20,
             streams[static_cast<size_t>(i)], {i % 3 == 0, 1, 0, 1, 5});
  }
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(streams[static_cast<size_t>(i)].wait(), Finish::Length);
    EXPECT_EQ(streams[static_cast<size_t>(i)].tokens,
              expected(prompt_of(i, 1 + static_cast<size_t>(i * 3 % 90)), 1 + i % 20))
        << i;
  }
  EXPECT_LE(f.executor->widest, 32);
  EXPECT_EQ(f.scheduler.statistics().kv_blocks_used, 0);
}

/// Returns the answers to concurrent prompts with different parameters: greedy decoding, sampling with every option,
/// and some that only the host's sampler supports.
std::vector<std::vector<int32_t>> mixed_answers(bool device_sampling, int64_t* sampled = nullptr) {
  Fixture f({.vocabulary = vocabulary,
             .positions = 512,
             .kv_blocks = 200,
             .max_concurrency = 10,
             .max_queue = 100,
             .step_tokens = 32},
            device_sampling);
  f.executor->sharpness = 3;
  const std::vector<SamplingParams> ways{
      {},
      {.do_sample = true, .seed = 5},
      {.do_sample = true, .temperature = 0.7, .top_k = 20, .seed = 6},
      {.do_sample = true, .temperature = 1.5, .top_p = 0.8, .seed = 7, .min_p = 0.01},
      {.repetition_penalty = 1.8},
      {.do_sample = true, .seed = 8, .repetition_penalty = 0.5, .presence_penalty = 0.5, .frequency_penalty = 0.25},
      {.do_sample = true, .seed = 9, .no_repeat_ngram_size = 1, .bad_words = {{4}, {5, 6}}},
      {.do_sample = true, .seed = 10, .typical_p = 0.7},
      {.no_repeat_ngram_size = 2},
      {.do_sample = true, .seed = 11, .min_new_tokens = 8}};
  std::vector<Stream> streams(30);
  for (size_t i = 0; i < streams.size(); ++i) {
    const bool ends = ways[i % ways.size()].min_new_tokens > 0;
    f.scheduler.submit({std::to_string(i),
                        prompt_of(static_cast<int>(i), 1 + i * 3 % 40),
                        12,
                        ways[i % ways.size()],
                        ends ? std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8} : std::vector<int64_t>{},
                        !ends,
                        {}},
                       [&, i](const Event& event) { streams[i](event); });
  }
  std::vector<std::vector<int32_t>> answers;
  for (Stream& stream : streams) {
    EXPECT_NE(stream.wait(), Finish::Failed) << stream.reason;
    answers.push_back(stream.tokens);
  }
  if (sampled) *sampled = f.executor->sampled;
  return answers;
}

TEST(Scheduler, DeviceSamplingAgreesWithTheHostsSampler) {
  int64_t sampled = 0;
  EXPECT_EQ(mixed_answers(true, &sampled), mixed_answers(false));
  EXPECT_GT(sampled, 8 * 3 * 8);  // eight of ten parameter sets, three requests each
}

TEST(Scheduler, SequencesOfOneRequestAreSampledOnTheDevice) {
  std::vector<std::vector<int32_t>> answers[2];
  for (bool device_sampling : {false, true}) {
    Fixture f({.vocabulary = vocabulary,
               .positions = 512,
               .kv_blocks = 100,
               .max_concurrency = 8,
               .max_queue = 100,
               .step_tokens = 32},
              device_sampling);
    f.executor->sharpness = 3;
    std::vector<Stream> sequences(3);
    f.scheduler.submit(
        {"1", prompt_of(1, 20), 9, {.do_sample = true, .seed = 3}, {}, true, {.num_return_sequences = 3}},
        [&](const Event& event) { sequences[static_cast<size_t>(event.sequence)](event); });
    for (Stream& one : sequences) {
      EXPECT_EQ(one.wait(), Finish::Length);
      answers[device_sampling].push_back(one.tokens);
    }
    EXPECT_EQ(f.executor->sampled, device_sampling ? 27 : 0);
  }
  EXPECT_EQ(answers[0], answers[1]);
  EXPECT_NE(answers[0][0], answers[0][1]);
}

TEST(Scheduler, RefusesInvalidRequestsAndSaysWhy) {
  Fixture f({.vocabulary = vocabulary,
             .positions = 64,
             .kv_blocks = 4,
             .max_concurrency = 2,
             .max_queue = 1,
             .step_tokens = 32});
  Stream stream;
  EXPECT_THROW(f.submit("a", {}, 1, stream), Error);
  EXPECT_THROW(f.submit("b", {1, 97}, 1, stream), Error);
  EXPECT_THROW(f.submit("c", {1, -1}, 1, stream), Error);
  try {
    f.submit("d", prompt_of(1, 60), 5, stream);
    FAIL() << "65 tokens fit into 64 positions";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "the prompt of 60 tokens plus max_new_tokens 5 exceeds the maximum of 64 tokens per sequence");
  }
}

TEST(Scheduler, BudgetsStepsAsThePlannerDoes) { EXPECT_EQ(pm::step_tokens, Limits{}.step_tokens); }

TEST(Scheduler, RefusesBeyondTheQueue) {
  Fixture f({.vocabulary = vocabulary,
             .positions = 512,
             .kv_blocks = 100,
             .max_concurrency = 1,
             .max_queue = 1,
             .step_tokens = 32});
  f.executor->slow = true;
  Stream first, second, third;
  f.submit("1", {1}, 30, first);
  while (f.scheduler.statistics().running == 0) std::this_thread::yield();
  f.submit("2", {1}, 1, second);
  try {
    f.submit("3", {1}, 1, third);
    FAIL() << "the queue holds one";
  } catch (const Error& error) {
    EXPECT_EQ(error.reason, Reason::QueueFull);
  }
  EXPECT_EQ(first.wait(), Finish::Length);
  EXPECT_EQ(second.wait(), Finish::Length);
}

TEST(Scheduler, CancelFreesTheSlotAndTheBlocks) {
  Fixture f({.vocabulary = vocabulary,
             .positions = 4096,
             .kv_blocks = 100,
             .max_concurrency = 1,
             .max_queue = 8,
             .step_tokens = 32});
  f.executor->slow = true;
  Stream first, second;
  f.submit("1", {1}, 1500, first);
  f.submit("2", {2}, 1, second);
  f.scheduler.cancel("1");
  EXPECT_EQ(first.wait(), Finish::Cancelled);
  EXPECT_EQ(second.wait(), Finish::Length);
  EXPECT_EQ(f.scheduler.statistics().kv_blocks_used, 0);
}

TEST(Scheduler, EndsAtAnEndToken) {
  Fixture f({.vocabulary = vocabulary,
             .positions = 512,
             .kv_blocks = 100,
             .max_concurrency = 1,
             .max_queue = 8,
             .step_tokens = 32});
  Stream stream;
  const auto answer = expected({3, 4}, 5);
  f.scheduler.submit({"1", {3, 4}, 5, {}, {answer[2]}, false, {}}, [&](const Event& event) { stream(event); });
  EXPECT_EQ(stream.wait(), Finish::Stop);
  EXPECT_EQ(stream.tokens, std::vector<int32_t>(answer.begin(), answer.begin() + 3));
}

/// The result of one forward request.
struct Reply {
  std::mutex mutex;
  std::condition_variable done;
  std::optional<ForwardResult> result;
  void operator()(ForwardResult got) {
    std::lock_guard lock(mutex);
    EXPECT_FALSE(result) << "a second reply";
    result = std::move(got);
    done.notify_all();
  }
  const ForwardResult& wait() {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(done.wait_for(lock, std::chrono::seconds(60), [&] { return result.has_value(); }));
    return *result;
  }
};

ForwardRequest forward_of(const std::string& id, int64_t value) {
  return {id, {{"input_ids", {{1, 1}, std::vector<int64_t>{value}}}}, false, false, {}};
}

TEST(Scheduler, AnEncoderReadsThePromptAndTheAnswerStartsWithItsOwnToken) {
  Limits limits{.vocabulary = vocabulary,
                .positions = 512,
                .kv_blocks = 40,
                .max_concurrency = 3,
                .max_queue = 100,
                .step_tokens = 32};
  limits.decoder_start = 9;
  Fixture f(limits);
  std::vector<Stream> streams(20);
  for (int i = 0; i < 20; ++i)
    f.submit(std::to_string(i), prompt_of(i, 1 + static_cast<size_t>(i * 5 % 60)), 1 + i % 20,
             streams[static_cast<size_t>(i)]);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(streams[static_cast<size_t>(i)].wait(), Finish::Length);
    EXPECT_EQ(streams[static_cast<size_t>(i)].tokens,
              expected({9}, 1 + i % 20, prompt_of(i, 1 + static_cast<size_t>(i * 5 % 60))))
        << i;
  }
  EXPECT_EQ(f.scheduler.statistics().kv_blocks_used, 0);
  Stream late;
  EXPECT_THROW(f.submit("blocks", prompt_of(1, 500), 200, late), Error) << "32 and 13 blocks are more than 40";
}

TEST(Scheduler, ForcedTokensComeAtTheirPositionsWhateverTheScores) {
  Limits limits{.vocabulary = vocabulary,
                .positions = 512,
                .kv_blocks = 40,
                .max_concurrency = 3,
                .max_queue = 100,
                .step_tokens = 32};
  limits.decoder_start = 9;
  limits.forced_bos = 3;
  limits.forced_eos = 96;
  Fixture f(limits);
  Stream stream, one;
  f.submit("a", {5, 6}, 4, stream);
  f.submit("b", {5, 6}, 1, one);
  EXPECT_EQ(stream.wait(), Finish::Length);
  EXPECT_EQ(one.wait(), Finish::Length);
  EXPECT_EQ(stream.tokens,
            (std::vector<int32_t>{3, 32, 31, 96}));  // 5 + 2 * 6 + 9 + 2 * 3 = 32, plus 3 * 32 for the next
  EXPECT_EQ(one.tokens, std::vector<int32_t>{96});
}

TEST(Scheduler, ForwardRequestsAndGenerationRunTogether) {
  Fixture f({.vocabulary = vocabulary,
             .positions = 512,
             .kv_blocks = 40,
             .max_concurrency = 4,
             .max_queue = 100,
             .step_tokens = 32});
  std::vector<Stream> streams(10);
  std::vector<Reply> replies(30);
  for (int i = 0; i < 30; ++i) {
    if (i < 10) f.submit(std::to_string(i), prompt_of(i, 5), 15, streams[static_cast<size_t>(i)]);
    f.scheduler.forward(forward_of("forward " + std::to_string(i), i),
                        [&, i](ForwardResult got) { replies[static_cast<size_t>(i)](std::move(got)); });
  }
  for (int i = 0; i < 30; ++i) {
    EXPECT_EQ(replies[static_cast<size_t>(i)].wait().outputs.at("logits"),
              (Array{{1, 1}, std::vector<int64_t>{2 * i}}));
  }
  for (int i = 0; i < 10; ++i) {
    streams[static_cast<size_t>(i)].wait();
    EXPECT_EQ(streams[static_cast<size_t>(i)].tokens, expected(prompt_of(i, 5), 15)) << i;
  }
}

TEST(Scheduler, AForwardRequestThatRunsOutOfMemoryFailsAlone) {
  Fixture f({.vocabulary = vocabulary,
             .positions = 512,
             .kv_blocks = 40,
             .max_concurrency = 4,
             .max_queue = 100,
             .step_tokens = 32});
  ForwardRequest large = forward_of("large", 1);
  large.inputs["too_large"] = {{1}, std::vector<int64_t>{1}};
  Stream stream;
  Reply reply, small;
  f.submit("a", prompt_of(3, 5), 15, stream);
  f.scheduler.forward(large, std::ref(reply));
  EXPECT_EQ(reply.wait().finish, Finish::Failed);
  EXPECT_THAT(reply.wait().reason, testing::HasSubstr("has no memory for 7.00 GiB in step"));
  EXPECT_TRUE(reply.wait().too_large);
  f.scheduler.forward(forward_of("small", 4), std::ref(small));
  EXPECT_EQ(small.wait().finish, Finish::Stop);
  EXPECT_EQ(stream.wait(), Finish::Length);
  EXPECT_EQ(stream.tokens, expected(prompt_of(3, 5), 15));
  EXPECT_FALSE(f.scheduler.failed());
}

TEST(Scheduler, ALargeForwardRequestRunsInPartsAndDoesNotDelayOthers) {
  Fixture f({.vocabulary = vocabulary,
             .positions = 512,
             .kv_blocks = 40,
             .max_concurrency = 4,
             .max_queue = 100,
             .step_tokens = 32});
  ForwardRequest large{"large",
                       {{"input_ids", {{20, 10}, std::vector<int64_t>(200)}},
                        {"attention_mask", {{20, 10}, std::vector<int64_t>(200, 1)}}},
                       false,
                       false,
                       {}};
  auto& ids = std::get<std::vector<int64_t>>(large.inputs["input_ids"].values);
  std::iota(ids.begin(), ids.end(), 0);
  Reply reply, small;
  f.executor->slow = true;
  f.scheduler.forward(large, std::ref(reply));
  f.scheduler.forward(forward_of("small", 4), std::ref(small));
  EXPECT_EQ(small.wait().finish, Finish::Stop);
  EXPECT_FALSE(reply.result) << "seven parts of three rows cannot be done yet";
  Array wanted = large.inputs["input_ids"];
  for (int64_t& id : std::get<std::vector<int64_t>>(wanted.values)) id *= 2;
  EXPECT_EQ(reply.wait().outputs.at("logits"), wanted);
}

TEST(Scheduler, AForwardRequestWithUnequalRowCountsRunsWhole) {
  Limits limits{.vocabulary = vocabulary,
                .positions = 512,
                .kv_blocks = 40,
                .max_concurrency = 4,
                .max_queue = 100,
                .step_tokens = 32};
  limits.split_forward = false;
  Fixture f(limits);
  Reply reply;
  ForwardRequest towers{
      "towers",
      {{"a_few_images", {{2, 1}, std::vector<float>(2)}}, {"input_ids", {{3, 1}, std::vector<int64_t>{4, 5, 6}}}},
      false,
      false,
      {}};
  f.scheduler.forward(towers, std::ref(reply));
  EXPECT_EQ(reply.wait().outputs.at("logits"), (Array{{3, 1}, std::vector<int64_t>{8, 10, 12}}));
}

TEST(Scheduler, AForwardRequestIsValidatedAtOnceCanBeCancelledAndCountsInTheQueue) {
  Fixture f({.vocabulary = vocabulary,
             .positions = 512,
             .kv_blocks = 40,
             .max_concurrency = 1,
             .max_queue = 2,
             .step_tokens = 32});
  f.executor->held = true;
  Reply never, first, second, third;
  EXPECT_THROW(f.scheduler.forward({"1", {}, false, false, {}}, std::ref(never)), Error);
  f.scheduler.forward(forward_of("1", 1), std::ref(first));
  while (f.scheduler.statistics().waiting > 0) std::this_thread::yield();
  f.scheduler.forward(forward_of("2", 2), std::ref(second));
  f.scheduler.forward(forward_of("3", 3), std::ref(third));
  EXPECT_THROW(f.scheduler.forward(forward_of("4", 4), std::ref(never)), Error);
  f.scheduler.cancel("3");
  f.executor->held = false;
  f.executor->held.notify_all();
  EXPECT_EQ(first.wait().finish, Finish::Stop);
  EXPECT_EQ(second.wait().finish, Finish::Stop);
  EXPECT_EQ(third.wait().finish, Finish::Cancelled);
  EXPECT_FALSE(never.result);
}

TEST(Scheduler, ALostRankFailsRunningAndWaitingForwardRequests) {
  Fixture f({.vocabulary = vocabulary,
             .positions = 512,
             .kv_blocks = 40,
             .max_concurrency = 1,
             .max_queue = 8,
             .step_tokens = 32});
  f.executor->slow = true;
  std::vector<Reply> replies(3);
  for (int i = 0; i < 3; ++i)
    f.scheduler.forward(forward_of(std::to_string(i), i),
                        [&, i](ForwardResult got) { replies[static_cast<size_t>(i)](std::move(got)); });
  f.executor->fail = true;
  EXPECT_EQ(replies[2].wait().finish, Finish::Failed);
  for (Reply& reply : replies) reply.wait();
  EXPECT_THROW(f.scheduler.forward(forward_of("4", 4), [](ForwardResult) {}), Error);
}

TEST(Scheduler, ALostRankFailsAllOpenRequestsAtOnceAndRefusesNewOnes) {
  Fixture f({.vocabulary = vocabulary,
             .positions = 4096,
             .kv_blocks = 100,
             .max_concurrency = 2,
             .max_queue = 8,
             .step_tokens = 32});
  f.executor->slow = true;
  Stream first, second, third;
  f.submit("1", {1}, 1000, first);
  f.submit("2", {2}, 1000, second);
  f.submit("3", {3}, 200, third);
  f.executor->fail = true;
  for (Stream* stream : {&first, &second, &third}) {
    EXPECT_EQ(stream->wait(), Finish::Failed);
    EXPECT_EQ(stream->reason, "rank 1 died of signal 9");
  }
  Stream late;
  EXPECT_THROW(f.submit("4", {1}, 1, late), Error);
}

}  // namespace
}  // namespace pm::engine
