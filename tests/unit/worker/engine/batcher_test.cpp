// SPDX-License-Identifier: Apache-2.0
// Tests that answers stay correct when KV blocks are shared, preempted or copied. The executor sums tokens through the
// block tables, so that the answer itself shows a mistake.
#include <gmock/gmock.h>

#include <future>

#include "tests/unit/worker/engine/replies.h"

namespace pm::engine {
namespace {

TEST(Batcher, PreemptionRestartsTheNewestRequestsAndChangesNoAnswer) {
  Fixture f({.vocabulary = vocabulary,
             .positions = 512,
             .kv_blocks = 14,
             .max_concurrency = 8,
             .max_queue = 100,
             .step_tokens = 64});
  std::vector<Stream> streams(12);
  for (int i = 0; i < 12; ++i)
    f.submit(std::to_string(i), prompt_of(i, 5 + static_cast<size_t>(i)), 60 + i, streams[static_cast<size_t>(i)]);
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(streams[static_cast<size_t>(i)].wait(), Finish::Length);
    EXPECT_EQ(streams[static_cast<size_t>(i)].tokens, expected(prompt_of(i, 5 + static_cast<size_t>(i)), 60 + i)) << i;
  }
  EXPECT_GT(f.scheduler.statistics().preempted, 0);
  EXPECT_EQ(f.scheduler.statistics().kv_blocks_used, 0);
  EXPECT_EQ(f.scheduler.statistics().finished, 12);
}

TEST(Batcher, ACachedPrefixIsNotComputedAgain) {
  Fixture f({.vocabulary = vocabulary,
             .positions = 512,
             .kv_blocks = 40,
             .max_concurrency = 4,
             .max_queue = 100,
             .step_tokens = 64});
  Stream first;
  f.submit("first", prompt_of(1, 70), 30, first);
  first.wait();
  const int64_t before = f.executor->computed;
  Replies again(1);
  submit(f, request_of("again", prompt_of(1, 70), 5), again);
  again.wait();
  EXPECT_EQ(again.tokens[0], expected(prompt_of(1, 70), 5));
  EXPECT_EQ(again.cached, 64);
  EXPECT_EQ(f.executor->computed - before, 6 + 4) << "six tokens of the prompt, and four of the answer";
  auto turn = prompt_of(1, 70);  // the next turn of a chat: the answer is cached too
  for (int32_t token : first.tokens) turn.push_back(token);
  Replies next(1);
  submit(f, request_of("next", turn, 3), next);
  next.wait();
  EXPECT_EQ(next.cached, 96);
  EXPECT_EQ(next.tokens[0], expected(turn, 3));
  EXPECT_EQ(f.scheduler.statistics().prefix_hit_tokens, 64 + 96);
}

TEST(Batcher, BlocksAfterACachedPrefixAreNotFoundAsAPrefix) {
  Fixture f({.vocabulary = vocabulary,
             .positions = 512,
             .kv_blocks = 40,
             .max_concurrency = 4,
             .max_queue = 100,
             .step_tokens = 64});
  Replies first(1), longer(1), middle(1);
  const auto tokens = prompt_of(1, 100);
  submit(f, request_of("first", {tokens.begin(), tokens.begin() + 40}, 1), first);
  first.wait();
  submit(f, request_of("longer", tokens, 1), longer);  // finds 32 tokens, leaves 64 more
  longer.wait();
  EXPECT_EQ(longer.cached, 32);
  submit(f, request_of("middle", {tokens.begin() + 32, tokens.begin() + 72}, 5), middle);
  middle.wait();
  EXPECT_EQ(middle.cached, 0);
  EXPECT_EQ(middle.tokens[0], expected({tokens.begin() + 32, tokens.begin() + 72}, 5));
}

TEST(Batcher, AfterAPreemptionASequenceWaitsForTheSharedBlocks) {
  Batcher batcher({.vocabulary = vocabulary,
                   .positions = 512,
                   .kv_blocks = 4,
                   .max_concurrency = 4,
                   .max_queue = 100,
                   .step_tokens = 64});
  const Time now{};
  Outbox outbox;
  std::vector<SamplingInput> sampling_inputs;
  const auto step = [&] {
    sampling_inputs.clear();
    const StepMessage message = batcher.plan(now, sampling_inputs, outbox);
    std::vector<SamplerOutput> sampled;
    for (const StepEntry& entry : message.entries)
      if (entry.output_kind != OutputKind::None) sampled.push_back({{Token{1, 0, {}}}, {}});
    batcher.apply(sampled, now, outbox);
    return message.entries;
  };
  const auto ignore = [](const Event&) {};
  batcher.enqueue(batcher.make(request_of("long", prompt_of(1, 31), 33), ignore, now));
  batcher.enqueue(batcher.make(request_of("two", prompt_of(2, 16), 2, {.num_return_sequences = 2}), ignore, now));
  EXPECT_EQ(step().size(), 2u) << "both prompts";
  EXPECT_EQ(step().size(), 1u) << "two more blocks for the second there are not";
  EXPECT_EQ(batcher.statistics().preempted, 1);
  for (int i = 0; i < 31; ++i) step();  // until the first request has used all blocks and ended
  ASSERT_EQ(batcher.statistics().finished, 1);
  const auto restarted = step();
  ASSERT_EQ(restarted.size(), 1u);
  EXPECT_EQ(restarted[0].tokens.size(), 17u);
  const auto next = step();
  ASSERT_EQ(next.size(), 1u) << "the first one has its two tokens";
  EXPECT_EQ(next[0].context, 16);
  EXPECT_EQ(batcher.statistics().finished, 2);
}

TEST(Batcher, SequencesOfOneRequestComputeThePromptOnceAndFork) {
  Fixture f({.vocabulary = vocabulary,
             .positions = 512,
             .kv_blocks = 40,
             .max_concurrency = 8,
             .max_queue = 100,
             .step_tokens = 64});
  Replies replies(4);
  Request request = request_of("samples", prompt_of(2, 40), 20, {.num_return_sequences = 4});
  request.sampling.do_sample = true;
  request.sampling.temperature = 30;  // flat distribution: many different ids are sampled
  request.sampling.seed = 5;
  submit(f, request, replies);
  replies.wait();
  EXPECT_EQ(f.executor->computed, 40 + 4 * 19);
  EXPECT_EQ(f.executor->copies, 3) << "the half-filled block: the last holder keeps it";
  EXPECT_NE(replies.tokens[0], replies.tokens[1]);
  Replies alone(1);
  request.search = {};
  submit(f, request, alone);
  alone.wait();
  EXPECT_EQ(alone.tokens[0], replies.tokens[0]) << "the seed decides, not the company";
  EXPECT_EQ(f.scheduler.statistics().kv_blocks_used, 0);
}

TEST(Batcher, BeamsCarryTheLogProbabilityOfTheirOwnTokens) {
  Fixture f({.vocabulary = vocabulary,
             .positions = 512,
             .kv_blocks = 60,
             .max_concurrency = 8,
             .max_queue = 100,
             .step_tokens = 64});
  f.executor->sharpness = 2;
  Replies replies(5);
  submit(f, request_of("beams", prompt_of(3, 23), 25, {.num_beams = 5, .num_return_sequences = 5, .length_penalty = 0}),
         replies);
  replies.wait();
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(replies.tokens[i].size(), 25u);
    EXPECT_NEAR(replies.scores[i], log_probability(*f.executor, prompt_of(3, 23), replies.tokens[i]), 1e-3) << i;
    if (i > 0) {
      EXPECT_LE(replies.scores[i], replies.scores[i - 1]);
      EXPECT_NE(replies.tokens[i], replies.tokens[i - 1]);
    }
  }
  EXPECT_EQ(replies.tokens[0], expected(prompt_of(3, 23), 25)) << "the most likely answer";
  EXPECT_EQ(f.scheduler.statistics().kv_blocks_used, 0);
}

TEST(Batcher, BeamsAndSampledSequencesSurvivePreemption) {
  Fixture f({.vocabulary = vocabulary,
             .positions = 512,
             .kv_blocks = 24,
             .max_concurrency = 16,
             .max_queue = 100,
             .step_tokens = 64});
  expect_preemption_changes_no_answer(f);
}

TEST(Batcher, TheBeamsOfAnEncoderDecoderShareTheEncodersBlocks) {
  Limits limits{.vocabulary = vocabulary,
                .positions = 512,
                .kv_blocks = 30,
                .max_concurrency = 8,
                .max_queue = 100,
                .step_tokens = 64};
  limits.decoder_start = 9;
  Fixture f(limits);
  f.executor->sharpness = 3;
  Replies replies(3);
  submit(f,
         request_of("beams", prompt_of(4, 100), 20, {.num_beams = 3, .num_return_sequences = 3, .length_penalty = 0}),
         replies);
  replies.wait();
  const auto read = prompt_of(4, 100);
  EXPECT_EQ(replies.tokens[0], expected({9}, 20, read));
  for (size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(replies.scores[i], log_probability(*f.executor, {9}, replies.tokens[i], read), 1e-3);
  EXPECT_EQ(f.scheduler.statistics().kv_blocks_used, 0);
}

TEST(Batcher, ABiasOfATokenOutsideTheVocabularyIsRefused) {
  Request request = request_of("a", {1, 2}, 4);
  request.sampling.logit_bias = {{3, 1}, {20, -1}};
  try {
    Batcher({.vocabulary = 20, .positions = 64, .kv_blocks = 60, .max_concurrency = 2})
        .make(std::move(request), {}, {});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("logit_bias has token id 20"));
  }
}

TEST(Batcher, ThePromptOfAnEncoderDecoderHasTheVocabularyAndThePositionsOfTheEncoder) {
  Limits limits{.vocabulary = 20, .positions = 64, .kv_blocks = 60, .max_concurrency = 2};
  limits.decoder_start = 9;
  const auto refusal = [&](int32_t id, size_t tokens) -> std::string {
    try {
      Request request = request_of("a", std::vector<int32_t>(tokens, id), 4);
      Batcher(limits).make(std::move(request), {}, {});
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_THAT(refusal(20, 3), testing::HasSubstr("token id 20 is outside the vocabulary of 20"));
  limits.source_vocabulary = 30;
  limits.source_positions = 80;
  EXPECT_EQ(refusal(29, 80), "");
  EXPECT_THAT(refusal(30, 3), testing::HasSubstr("token id 30 is outside the vocabulary of 30"));
  EXPECT_THAT(refusal(1, 81), testing::HasSubstr("the input of 81 tokens exceeds the maximum of 80"));
}

Arrays sounds_of(const std::vector<int32_t>& tokens) {
  return {{"sounds", {{1, static_cast<int64_t>(tokens.size())}, std::vector<float>(tokens.begin(), tokens.end())}}};
}

TEST(Batcher, AnAnswerToSoundsContinuesThePromptAndSurvivesPreemption) {
  Limits limits{.vocabulary = vocabulary,
                .positions = 512,
                .kv_blocks = 24,
                .max_concurrency = 8,
                .max_queue = 100,
                .step_tokens = 64};
  limits.decoder_start = 9;
  limits.source_inputs = true;
  Fixture f(limits);
  std::vector<std::unique_ptr<Replies>> replies;
  const auto heard = [](int i) { return prompt_of(i, 40 + static_cast<size_t>(i)); };
  const auto asked = [](int i) { return i % 2 ? std::vector<int32_t>{5, 6} : std::vector<int32_t>(); };
  for (int i = 0; i < 8; ++i) {
    Request request = request_of(std::to_string(i), asked(i), 60);
    request.source = sounds_of(heard(i));
    replies.push_back(std::make_unique<Replies>(1));
    submit(f, std::move(request), *replies.back());
  }
  for (int i = 0; i < 8; ++i) {
    replies[static_cast<size_t>(i)]->wait();
    std::vector<int32_t> start = asked(i);
    start.insert(start.begin(), 9);
    EXPECT_EQ(replies[static_cast<size_t>(i)]->tokens[0], expected(start, 60, heard(i))) << i;
  }
  EXPECT_GT(f.scheduler.statistics().preempted, 0);
  EXPECT_EQ(f.scheduler.statistics().kv_blocks_used, 0);
}

TEST(Batcher, ASourceIsRefusedWhereTheModelReadsNoneAndAskedForWhereItReadsOne) {
  Limits limits{.vocabulary = vocabulary, .positions = 64, .kv_blocks = 60, .max_concurrency = 2};
  limits.decoder_start = 9;
  const auto refusal = [&](std::vector<int32_t> prompt, Arrays source) -> std::string {
    try {
      Request request = request_of("a", std::move(prompt), 4);
      request.source = std::move(source);
      Batcher(limits).make(std::move(request), {}, {}, 3);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_THAT(refusal({1}, sounds_of({1, 2, 3})), testing::HasSubstr("this model has none"));
  limits.source_inputs = true;
  EXPECT_EQ(refusal({}, sounds_of({1, 2, 3})), "");
  EXPECT_THAT(refusal({1}, {}), testing::HasSubstr("no image or audio"));
  EXPECT_THAT(refusal({97}, sounds_of({1, 2, 3})), testing::HasSubstr("token id 97 is outside the vocabulary of 97"));
  limits.source_positions = 2;
  EXPECT_THAT(refusal({}, sounds_of({1, 2, 3})), testing::HasSubstr("exceeds the maximum of 2"));
  limits.decoder_start = -1;
  EXPECT_THAT(refusal({}, sounds_of({1, 2, 3})), testing::HasSubstr("no decoder_start_token_id"));
}

TEST(Batcher, CancellingARequestEndsEachOfItsSequencesOnce) {
  Fixture f({.vocabulary = vocabulary,
             .positions = 4096,
             .kv_blocks = 600,
             .max_concurrency = 8,
             .max_queue = 100,
             .step_tokens = 64});
  f.executor->slow = true;
  Replies replies(3), beams(2);
  submit(f, request_of("samples", {1}, 2000, {.num_return_sequences = 3}), replies);
  submit(f, request_of("beams", {2}, 1500, {.num_beams = 2, .num_return_sequences = 2}), beams);
  while (f.scheduler.statistics().generation_tokens < 10) std::this_thread::yield();
  f.scheduler.cancel("samples");
  f.scheduler.cancel("beams");
  replies.wait();
  beams.wait();
  EXPECT_EQ(replies.finishes, (std::vector<Finish>(3, Finish::Cancelled)));
  EXPECT_EQ(beams.finishes, (std::vector<Finish>(2, Finish::Cancelled)));
  while (f.scheduler.statistics().kv_blocks_used > 0) std::this_thread::yield();
}

TEST(Batcher, MaxTimeEndsAnswersWithFinishLength) {
  std::atomic<int64_t> milliseconds{0};
  auto* executor = new SummingExecutor(100);
  Rank rank{std::unique_ptr<parallel::Executor>(executor)};
  Scheduler scheduler(rank, {},
                      {.vocabulary = vocabulary,
                       .positions = 4096,
                       .kv_blocks = 100,
                       .max_concurrency = 4,
                       .max_queue = 8,
                       .step_tokens = 64},
                      {}, [&] { return Time(std::chrono::milliseconds(milliseconds += 10)); });
  Replies replies(1), beams(2);
  Request request = request_of("timed", {1, 2}, 1000),
          searched = request_of("searched", {1, 2}, 500, {.num_beams = 2, .num_return_sequences = 2});
  request.max_time = searched.max_time = 1;
  scheduler.submit(request, [&](const Event& event) { replies(event); });
  scheduler.submit(searched, [&](const Event& event) { beams(event); });
  replies.wait();
  beams.wait();
  EXPECT_EQ(replies.finishes[0], Finish::Length);
  EXPECT_LT(replies.tokens[0].size(), 100u);
  EXPECT_GT(beams.tokens[0].size(), 0u);
  EXPECT_LT(beams.tokens[0].size(), 100u);
}

TEST(Batcher, ARequestPastItsMaxTimeIsNotStarted) {
  Batcher batcher({.vocabulary = vocabulary,
                   .positions = 512,
                   .kv_blocks = 4,
                   .max_concurrency = 1,
                   .max_queue = 100,
                   .step_tokens = 64});
  const Time now{}, later = now + std::chrono::seconds(2);
  Outbox outbox;
  std::vector<SamplingInput> sampling_inputs;
  Request timed = request_of("timed", {1}, 5);
  timed.max_time = 1;
  batcher.enqueue(batcher.make(request_of("running", {2}, 5), [](const Event&) {}, now));
  batcher.enqueue(batcher.make(timed, [](const Event&) {}, now));
  for (const Time time : {now, later}) {
    batcher.plan(time, sampling_inputs, outbox);
    batcher.apply({{{Token{1, 0, {}}}, {}}}, time, outbox);
  }
  ASSERT_EQ(outbox.size(), 3u) << "two tokens of the one that runs, the end of the other";
  EXPECT_EQ(outbox[1].second.finish, Finish::Length);
  EXPECT_TRUE(outbox[1].second.tokens.empty());
  EXPECT_EQ(batcher.waiting(), 0);
  EXPECT_EQ(batcher.statistics().finished, 1);
}

TEST(Batcher, LogProbabilitiesAreTheModelsOwn) {
  Fixture f({.vocabulary = vocabulary,
             .positions = 512,
             .kv_blocks = 40,
             .max_concurrency = 4,
             .max_queue = 100,
             .step_tokens = 64});
  f.executor->sharpness = 4;
  std::vector<Token> tokens;
  std::promise<void> done;
  Request request = request_of("logprobs", {5}, 2);
  request.logprobs = 2;
  request.sampling.repetition_penalty = 1.5;  // changes the sampled token, not the reported log-probabilities
  f.scheduler.submit(request, [&](const Event& event) {
    tokens.insert(tokens.end(), event.tokens.begin(), event.tokens.end());
    if (event.finish != Finish::None) done.set_value();
  });
  done.get_future().wait();
  const double total = std::log(std::exp(4.0) + vocabulary - 1);
  ASSERT_EQ(tokens.size(), 2u);
  EXPECT_NEAR(tokens[0].logprob, 4 - total, 1e-5);
  EXPECT_EQ(tokens[0].top_logprobs[0].first, 5);
  EXPECT_EQ(tokens[0].top_logprobs[1].first, 0) << "of equal ones the smaller id";
  EXPECT_NEAR(tokens[0].top_logprobs[1].second, -total, 1e-5);
}

TEST(Batcher, RefusesImpossibleSearchParametersAndSaysWhy) {
  Fixture f({.vocabulary = vocabulary,
             .positions = 512,
             .kv_blocks = 20,
             .max_concurrency = 4,
             .max_queue = 100,
             .step_tokens = 64});
  const auto refusal = [&](Request request) -> std::string {
    try {
      f.scheduler.submit(std::move(request), [](const Event&) {});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(request_of("a", {1}, 5, {.num_beams = 2, .num_return_sequences = 3})),
            "num_return_sequences is 3 but num_beams is 2; num_return_sequences must not exceed num_beams");
  EXPECT_EQ(refusal(request_of("b", {1}, 5, {.num_beams = 5})),
            "the request needs 5 concurrent sequences; the maximum is 4");
  EXPECT_EQ(
      refusal(request_of("c", {1}, 100, {.num_beams = 4})),
      "the input of 1 tokens and 4 sequence(s) of max_new_tokens 100 need 28 KV blocks of 16 tokens; 20 are available");
}

TEST(Scheduler, WaitingForwardRequestsAreBatched) {
  Fixture f({.vocabulary = vocabulary,
             .positions = 512,
             .kv_blocks = 40,
             .max_concurrency = 1,
             .max_queue = 100,
             .step_tokens = 64});
  f.executor->slow = true;
  std::atomic<int> left{21};
  const auto forward = [&](int i) {
    f.scheduler.forward({std::to_string(i), {{"input_ids", {{2, 3}, std::vector<int64_t>(6, i)}}}, false, false, {}},
                        [&, i](ForwardResult result) {
                          EXPECT_EQ(std::get<std::vector<int64_t>>(result.outputs.at("logits").values),
                                    std::vector<int64_t>(6, 2 * i));
                          --left;
                        });
  };
  forward(0);
  while (f.scheduler.statistics().waiting > 0) std::this_thread::yield();
  for (int i = 1; i <= 20; ++i) forward(i);  // 120 tokens: two steps of 64
  while (left > 0) std::this_thread::yield();
  EXPECT_LE(f.executor->forwards, 1 + 3);
}

}  // namespace
}  // namespace pm::engine
