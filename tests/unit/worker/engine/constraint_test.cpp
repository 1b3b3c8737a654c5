// SPDX-License-Identifier: Apache-2.0
// Tests that constrained sequences keep to their masks on every path of sampling, and fail where they cannot.
#include <gmock/gmock.h>

#include <future>
#include <set>

#include "tests/unit/worker/engine/summing_executor.h"

namespace pm::engine {
namespace {

using testing::HasSubstr;

constexpr int32_t end_token = 5;

/// Allows the ids that have the remainder of their place modulo `divisor`, and ends after `length` tokens. With
/// `open_end` the answer has to end with an end token instead, which is allowed from there on.
class Remainders final : public TokenConstraint {
 public:
  struct Options {
    int32_t divisor = 7;
    int64_t length = 9;
    bool open_end = false;
    int64_t fails_at = -1;  ///< place without a mask
  };
  explicit Remainders(Options options) : options_(options) {}
  std::unique_ptr<TokenConstraint> fork() const override { return std::make_unique<Remainders>(*this); }
  TokenMask next() override {
    if (place_ == options_.fails_at) throw std::runtime_error("the mask takes too much");
    may_end_ = options_.open_end && place_ >= options_.length;
    TokenMask mask{.words = std::vector<uint32_t>((vocabulary + 31) / 32), .may_end = may_end_};
    for (size_t id = 0; id < vocabulary; ++id)
      if (fits(static_cast<int32_t>(id))) mask.words[id / 32] |= 1U << (id % 32);
    return mask;
  }
  bool may_end() const override { return may_end_; }
  bool append(int32_t id) override {
    if (!fits(id)) throw std::runtime_error("the token does not fit");
    may_end_ = false;
    return ++place_ >= options_.length && !options_.open_end;
  }

 private:
  bool fits(int32_t id) const { return id % options_.divisor == place_ % options_.divisor; }
  Options options_;
  int64_t place_ = 0;
  bool may_end_ = false;
};

constexpr Limits limits{.vocabulary = vocabulary,
                        .positions = 512,
                        .kv_blocks = 200,
                        .max_concurrency = 10,
                        .max_queue = 100,
                        .step_tokens = 32};

/// The last events of a request's sequences, and their tokens.
struct Sequences {
  explicit Sequences(size_t count = 1) : streams(count), last(count) {}
  std::vector<Stream> streams;
  std::vector<Event> last;
  void operator()(const Event& event) {
    last[static_cast<size_t>(event.sequence)] = event;
    streams[static_cast<size_t>(event.sequence)](event);
  }
};

Request request_of(int seed, SamplingParams sampling, Remainders::Options options = {}) {
  Request request{.id = std::to_string(seed), .prompt = prompt_of(seed, 5 + static_cast<size_t>(seed) % 30)};
  request.max_new_tokens = 20;
  request.sampling = std::move(sampling);
  request.constraint = std::make_shared<Remainders>(options);
  return request;
}

void submit(Fixture& f, const Request& request, Sequences& sequences) {
  f.scheduler.submit(request, [&](const Event& event) { sequences(event); });
}

void expect_follows(const std::vector<int32_t>& tokens, int32_t divisor, size_t count, const std::string& what) {
  ASSERT_EQ(tokens.size(), count) << what;
  for (size_t i = 0; i < count; ++i) EXPECT_EQ(tokens[i] % divisor, static_cast<int32_t>(i) % divisor) << what;
}

const std::vector<SamplingParams> ways{{},
                                       {.do_sample = true, .seed = 5},
                                       {.do_sample = true, .temperature = 0.7, .top_k = 3, .seed = 6},
                                       {.do_sample = true, .temperature = 1.5, .top_p = 0.2, .seed = 7, .min_p = 0.3},
                                       {.do_sample = true, .seed = 8, .typical_p = 0.3},
                                       {.repetition_penalty = 1.8, .presence_penalty = 0.5},
                                       {.do_sample = true, .seed = 9, .no_repeat_ngram_size = 1}};

TEST(Constraint, HoldsForEverySamplingPathWithAndWithoutADeviceSampler) {
  for (const bool device_sampling : {false, true}) {
    Fixture f(limits, device_sampling);
    f.executor->sharpness = 3;
    std::vector<Sequences> answers(2 * ways.size());
    for (size_t i = 0; i < answers.size(); ++i) {
      Request request = request_of(static_cast<int>(i), ways[i % ways.size()]);
      if (i >= ways.size()) request.logprobs = 2;
      submit(f, request, answers[i]);
    }
    for (size_t i = 0; i < answers.size(); ++i) {
      EXPECT_EQ(answers[i].streams[0].wait(), Finish::Stop) << answers[i].streams[0].reason;
      EXPECT_TRUE(answers[i].last[0].ends_with_text);
      expect_follows(answers[i].streams[0].tokens, 7, 9, "parameters " + std::to_string(i));
    }
  }
}

TEST(Constraint, RequestsOfDifferentConstraintsAndNoneShareSteps) {
  Fixture f(limits, true);
  std::vector<Sequences> answers(10);
  for (int i = 0; i < 10; ++i) {
    Request request = request_of(i, {}, {.divisor = 3 + i, .length = 4 + i});
    if (i % 3 == 0) request.constraint = nullptr, request.ignore_eos = true;
    submit(f, request, answers[static_cast<size_t>(i)]);
  }
  for (int i = 0; i < 10; ++i) {
    Stream& stream = answers[static_cast<size_t>(i)].streams[0];
    EXPECT_EQ(stream.wait(), i % 3 == 0 ? Finish::Length : Finish::Stop);
    if (i % 3 == 0)
      EXPECT_EQ(stream.tokens, expected(prompt_of(i, 5 + static_cast<size_t>(i) % 30), 20));
    else
      expect_follows(stream.tokens, 3 + i, static_cast<size_t>(4 + i), std::to_string(i));
  }
}

TEST(Constraint, SequencesOfOneRequestHaveStatesOfTheirOwn) {
  Fixture f(limits);
  f.executor->sharpness = 2;
  Request request = request_of(1, {.do_sample = true, .seed = 3});
  request.search.num_return_sequences = 4;
  Sequences answers(4);
  submit(f, request, answers);
  for (Stream& stream : answers.streams) {
    EXPECT_EQ(stream.wait(), Finish::Stop);
    expect_follows(stream.tokens, 7, 9, stream.reason);
  }
  EXPECT_NE(answers.streams[0].tokens, answers.streams[1].tokens);
}

TEST(Constraint, APreemptedSequenceGoesOnWhereItWas) {
  Limits few = limits;
  few.kv_blocks = 14;
  Fixture f(few);
  std::vector<Sequences> answers(6);
  for (int i = 0; i < 6; ++i) {
    Request request = request_of(i, {}, {.length = 60});
    request.max_new_tokens = 80;
    submit(f, request, answers[static_cast<size_t>(i)]);
  }
  for (Sequences& one : answers) {
    EXPECT_EQ(one.streams[0].wait(), Finish::Stop) << one.streams[0].reason;
    expect_follows(one.streams[0].tokens, 7, 60, "");
  }
  EXPECT_GT(f.scheduler.statistics().preempted, 0);
}

TEST(Constraint, EndTokensAreAllowedOnlyWhereTheAnswerMayEnd) {
  Fixture f(limits);
  f.executor->sharpness = 0;  // every token is as likely
  for (int seed = 0; seed < 8; ++seed) {
    Request request =
        request_of(seed, {.do_sample = true, .seed = static_cast<uint64_t>(seed)}, {.length = 6, .open_end = true});
    request.eos = {end_token, 6, 7};
    request.max_new_tokens = 200;
    Sequences answer;
    submit(f, request, answer);
    EXPECT_EQ(answer.streams[0].wait(), Finish::Stop);
    EXPECT_FALSE(answer.last[0].ends_with_text);
    EXPECT_GT(answer.streams[0].tokens.size(), 6);
  }
}

TEST(Constraint, MaxTokensCutsTheAnswer) {
  Fixture f(limits);
  Request request = request_of(1, {.forced_eos = end_token});
  request.eos = {end_token};
  request.max_new_tokens = 4;
  Sequences answer;
  submit(f, request, answer);
  EXPECT_EQ(answer.streams[0].wait(), Finish::Length);
  expect_follows(answer.streams[0].tokens, 7, 4, "a forced end token would follow no constraint");
}

TEST(Constraint, FailsWhereNoTokenIsAllowed) {
  Fixture f(limits);
  Sequences answer, banned, other;
  submit(f, request_of(1, {}, {.fails_at = 3}), answer);
  SamplingParams sampling;
  for (int32_t id = 0; id < vocabulary; ++id)
    if (id % 7 == 2) sampling.bad_words.push_back({id});
  submit(f, request_of(2, sampling), banned);
  submit(f, request_of(3, {}), other);
  EXPECT_EQ(answer.streams[0].wait(), Finish::Failed);
  EXPECT_EQ(answer.streams[0].reason, "the mask takes too much");
  EXPECT_TRUE(answer.last[0].constraint_failed);
  EXPECT_EQ(answer.streams[0].tokens.size(), 3);
  EXPECT_EQ(banned.streams[0].wait(), Finish::Failed);
  EXPECT_THAT(banned.streams[0].reason, HasSubstr("banned by the other parameters"));
  EXPECT_EQ(other.streams[0].wait(), Finish::Stop) << "a failed request takes no other with it";
  EXPECT_EQ(f.scheduler.statistics().kv_blocks_used, 0);
}

/// A request whose answers end with the end token.
Request beams_of(int seed, int64_t beams, int64_t returned, Remainders::Options options = {}) {
  Request request = request_of(seed, {}, options);
  request.search = {.num_beams = beams, .num_return_sequences = returned};
  request.eos = {end_token};
  return request;
}

TEST(Constraint, EveryBeamFollowsItAndEndsWithAnEndToken) {
  Fixture f(limits);
  f.executor->sharpness = 3;
  std::vector<Sequences> answers;
  for (int i = 0; i < 8; ++i) answers.emplace_back(3);
  for (int i = 0; i < 8; ++i) {
    Request request = beams_of(i, 4, 3);
    request.sampling.do_sample = i % 2 == 1;
    request.sampling.seed = static_cast<uint64_t>(i);
    submit(f, request, answers[static_cast<size_t>(i)]);
  }
  for (Sequences& answer : answers) {
    std::set<std::vector<int32_t>> different;
    for (Stream& stream : answer.streams) {
      EXPECT_EQ(stream.wait(), Finish::Stop) << stream.reason;
      ASSERT_EQ(stream.tokens.size(), 10);
      EXPECT_EQ(stream.tokens.back(), end_token);
      stream.tokens.pop_back();
      expect_follows(stream.tokens, 7, 9, "a beam");
      different.insert(stream.tokens);
    }
    EXPECT_EQ(different.size(), 3);
  }
}

TEST(Constraint, BeamsEndWhereItAllowsAndAreCutByTheirLength) {
  Fixture f(limits);
  f.executor->sharpness = 1;
  Sequences open(2), cut;
  submit(f, beams_of(1, 3, 2, {.length = 4, .open_end = true}), open);
  Request request = beams_of(2, 3, 1);
  request.max_new_tokens = 5;
  submit(f, request, cut);
  for (Stream& stream : open.streams) {
    EXPECT_NE(stream.wait(), Finish::Failed);
    if (stream.finish == Finish::Stop) {
      ASSERT_GT(stream.tokens.size(), 4);
      EXPECT_EQ(stream.tokens.back(), end_token);
      stream.tokens.pop_back();
    }
    expect_follows(stream.tokens, 7, stream.tokens.size(), "an open end");
  }
  EXPECT_EQ(cut.streams[0].wait(), Finish::Length);
  expect_follows(cut.streams[0].tokens, 7, 5, "a beginning");
}

TEST(Constraint, BeamsFailWhereItAllowsTooFewAnswers) {
  constexpr Remainders::Options one_answer{.divisor = vocabulary, .length = 4};
  Fixture f(limits);
  Sequences one, two(2);
  submit(f, beams_of(1, 4, 1, one_answer), one);
  submit(f, beams_of(2, 4, 2, one_answer), two);
  EXPECT_EQ(one.streams[0].wait(), Finish::Stop) << one.streams[0].reason;
  EXPECT_EQ(one.streams[0].tokens, (std::vector<int32_t>{0, 1, 2, 3, end_token}));
  EXPECT_EQ(two.streams[0].wait(), Finish::Failed);
  EXPECT_EQ(two.streams[0].reason, "the beams found 1 answers that it allows, and 2 are to be returned");
  EXPECT_TRUE(two.last[0].constraint_failed);
  EXPECT_EQ(f.scheduler.statistics().kv_blocks_used, 0);
}

TEST(Constraint, RefusesWhatItCannotBeCombinedWith) {
  Fixture f(limits);
  Sequences none;
  const auto refusal = [&](const Request& request) -> std::string {
    try {
      submit(f, request, none);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  Request beams = beams_of(1, 2, 1);
  beams.eos.clear();
  EXPECT_THAT(refusal(beams), HasSubstr("num_beams 2 needs an end token"));
  EXPECT_THAT(refusal(request_of(2, {.forced_bos = 3})), HasSubstr("forced_bos_token_id 3"));
}

TEST(MaskThread, ComputesMasksBesideTheCallerAndPassesErrorsOn) {
  MaskThread thread;
  std::vector<SamplingInput> inputs(3);
  inputs[0].constraint = std::make_shared<Remainders>(Remainders::Options{});
  inputs[2].constraint = std::make_shared<Remainders>(Remainders::Options{.fails_at = 0});
  thread.compute(inputs);
  EXPECT_TRUE(inputs[0].mask.get().allows(7));
  EXPECT_FALSE(inputs[0].mask.get().allows(8));
  EXPECT_FALSE(inputs[0].mask.get().allows(70'000));
  EXPECT_FALSE(inputs[1].mask.valid());
  EXPECT_THROW(inputs[2].mask.get(), std::runtime_error);
}

}  // namespace
}  // namespace pm::engine
