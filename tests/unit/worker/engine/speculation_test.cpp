// SPDX-License-Identifier: Apache-2.0
// Tests that answers with drafts are those without: greedy, sampled, constrained, with penalties and log-probabilities,
// on the host's and on the device's sampler, under preemption and in a pipeline.
#include <gmock/gmock.h>

#include "tests/unit/worker/engine/replies.h"
#include "tests/unit/worker/engine/staged_dp_rank.h"

namespace pm::engine {
namespace {

const Speculation how{6, [] { return ngram_drafter({2, 4}); }};

/// Returns the token that the summing executor expects behind one at this position.
int32_t after(int32_t token, int64_t position) {
  return static_cast<int32_t>(token * (1 + weight_of(position)) % vocabulary);
}

/// A prompt in which the tokens of its answer stand already, so that n-grams find them. Every `wrong`-th of them is
/// another one, so that drafts are rejected there; 0: none.
std::vector<int32_t> known_prompt(int32_t start, int64_t length, int64_t wrong = 0) {
  std::vector<int32_t> chain{start};
  for (int64_t i = 0; i + 1 < length; ++i) chain.push_back(after(chain.back(), i));
  std::vector<int32_t> prompt = chain;
  for (int64_t i = wrong; wrong > 0 && i < length; i += wrong) prompt[static_cast<size_t>(i)] += i % 2 ? 3 : 5;
  for (int32_t& token : prompt) token %= static_cast<int32_t>(vocabulary);
  prompt.resize(static_cast<size_t>(length / 5 * 5 + 1));
  for (prompt.back() = 0; sum_of(prompt) % vocabulary != chain[1]; ++prompt.back()) {
  }
  return prompt;
}

Limits limits_of(bool speculates, int64_t kv_blocks = 200) {
  Limits limits{.vocabulary = vocabulary,
                .positions = 512,
                .kv_blocks = kv_blocks,
                .max_concurrency = 16,
                .max_queue = 100,
                .step_tokens = 64};
  if (speculates) limits.speculation = how;
  return limits;
}

/// The events of a request, one list for each sequence.
struct Answers {
  explicit Answers(int64_t sequences) : tokens(static_cast<size_t>(sequences)), open(sequences) {}
  std::mutex mutex;
  std::condition_variable done;
  std::vector<std::vector<Token>> tokens;
  std::vector<std::pair<Finish, std::string>> ends = {};
  int64_t open;
  void operator()(const Event& event) {
    std::lock_guard lock(mutex);
    auto& own = tokens.at(static_cast<size_t>(event.sequence));
    own.insert(own.end(), event.tokens.begin(), event.tokens.end());
    if (event.finish == Finish::None) return;
    ends.resize(tokens.size());
    ends[static_cast<size_t>(event.sequence)] = {event.finish, event.reason};
    if (--open == 0) done.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(done.wait_for(lock, std::chrono::seconds(60), [&] { return open == 0; }));
  }
};

/// Runs the requests together, and returns their answers.
std::vector<std::unique_ptr<Answers>> run(Scheduler& scheduler, const std::vector<Request>& requests) {
  std::vector<std::unique_ptr<Answers>> answers;
  for (const Request& request : requests) {
    answers.push_back(std::make_unique<Answers>(request.search.num_return_sequences));
    scheduler.submit(request, [&one = *answers.back()](const Event& event) { one(event); });
  }
  for (const auto& one : answers) one->wait();
  return answers;
}

void expect_equal(const std::vector<std::unique_ptr<Answers>>& found,
                  const std::vector<std::unique_ptr<Answers>>& expected_ones) {
  ASSERT_EQ(found.size(), expected_ones.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i]->tokens, expected_ones[i]->tokens) << "request " << i;
    EXPECT_EQ(found[i]->ends, expected_ones[i]->ends) << "request " << i;
  }
}

/// Runs the requests with and without speculation and expects the same. Returns the counters of speculation.
Statistics compare(const std::vector<Request>& requests, float sharpness, int64_t kv_blocks = 200,
                   bool device_sampling = false) {
  Fixture plain(limits_of(false, kv_blocks), device_sampling), drafts(limits_of(true, kv_blocks), device_sampling);
  plain.executor->sharpness = drafts.executor->sharpness = sharpness;
  const auto without = run(plain.scheduler, requests), with = run(drafts.scheduler, requests);
  expect_equal(with, without);
  const Statistics statistics = drafts.scheduler.statistics();
  EXPECT_EQ(plain.scheduler.statistics().draft_tokens, 0);
  EXPECT_EQ(statistics.kv_blocks_used, 0);
  EXPECT_EQ(statistics.generation_tokens, plain.scheduler.statistics().generation_tokens);
  return statistics;
}

Request request_for(int i, int64_t count, int64_t wrong = 0) {
  return request_of(std::to_string(i), known_prompt(1 + i, 40 + i % 7, wrong), count);
}

TEST(Speculation, AcceptsDraftsOfWhatTheAnswerRepeats) {
  Fixture f(limits_of(true));
  const std::vector<int32_t> prompt = known_prompt(3, 60);
  Replies answer(1);
  submit(f, request_of("a", prompt, 50), answer);
  answer.wait();
  EXPECT_EQ(answer.tokens[0], expected(prompt, 50));
  const Statistics s = f.scheduler.statistics();
  EXPECT_GT(s.accepted_tokens, 20);
  EXPECT_LT(s.steps, 30) << "fewer than tokens";
}

TEST(Speculation, ChangesNoGreedyAnswerWhenSomeDraftsAreRejected) {
  std::vector<Request> requests;
  for (int i = 0; i < 12; ++i) requests.push_back(request_for(i, 45, i % 4 == 0 ? 0 : 3 + i));
  const Statistics s = compare(requests, 100);
  EXPECT_GT(s.accepted_tokens, 50);
  EXPECT_GT(s.draft_tokens, s.accepted_tokens + 10);
}

TEST(Speculation, ChangesNothingWhenAllDraftsAreRejected) {
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) requests.push_back(request_for(i, 30, 3));  // behind each bigram stands another token
  const Statistics s = compare(requests, 100);
  EXPECT_GT(s.drafts, 20);
  EXPECT_EQ(s.accepted_tokens, 0);
}

TEST(Speculation, ChangesNoSampledAnswerOfASeed) {
  for (const bool device_sampling : {false, true}) {
    std::vector<Request> requests;
    for (int i = 0; i < 12; ++i) {
      Request request = request_for(i, 40, i % 3 == 0 ? 7 : 0);
      request.sampling = {.do_sample = true, .seed = static_cast<uint64_t>(i)};
      if (i % 4 == 1) request.sampling.top_k = 5;
      if (i % 4 == 2) request.sampling.temperature = 0.8, request.sampling.top_p = 0.9;
      if (i % 4 == 3) request.search.num_return_sequences = 4;
      if (i % 6 == 5) request.sampling.typical_p = 0.9;
      requests.push_back(request);
    }
    requests.resize(10);
    const Statistics s = compare(requests, 7, 200, device_sampling);
    EXPECT_GT(s.accepted_tokens, 50);
    EXPECT_GT(s.draft_tokens, s.accepted_tokens);
  }
}

TEST(Speculation, CountsAcceptedDraftsInPenaltiesAndBans) {
  for (const bool device_sampling : {false, true}) {
    std::vector<Request> requests;
    for (int i = 0; i < 12; ++i) {
      Request request = request_for(i, 45);
      SamplingParams& sampling = request.sampling;
      if (i % 2) sampling = {.do_sample = true, .seed = static_cast<uint64_t>(i)};
      if (i % 6 == 0) sampling.frequency_penalty = 1.5;
      if (i % 6 == 1) sampling.presence_penalty = 2, sampling.repetition_penalty = 1.2;
      if (i % 6 == 2) sampling.no_repeat_ngram_size = 4;
      if (i % 6 == 3) sampling.logit_bias = {{known_prompt(1 + i, 40)[9], -4}, {5, 2}};
      if (i % 6 == 4) sampling.bad_words = {{known_prompt(1 + i, 44)[7], known_prompt(1 + i, 44)[8]}};
      if (i % 6 == 5)
        sampling.min_new_tokens = 9, request.eos = {known_prompt(1 + i, 45)[4], known_prompt(1 + i, 45)[12]};
      requests.push_back(request);
    }
    const Statistics s = compare(requests, 5, 200, device_sampling);
    EXPECT_GT(s.accepted_tokens, 20);
    EXPECT_GT(s.draft_tokens, s.accepted_tokens);
  }
}

TEST(Speculation, GivesEveryTokenTheLogProbabilitiesOfItsOwnRow) {
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) {
    Request request = request_for(i, 30, i % 2 ? 8 : 0);
    request.logprobs = i % 3;
    request.prompt_logprobs = i == 5 ? 1 : -1;
    if (i > 2) request.sampling = {.do_sample = true, .seed = 4};
    requests.push_back(request);
  }
  EXPECT_GT(compare(requests, 6).accepted_tokens, 20);
}

TEST(Speculation, EndsAtAnEndTokenInTheMiddleOfAcceptedDrafts) {
  for (int place = 1; place < 14; ++place) {
    Request request = request_for(2, 40);
    request.eos = {known_prompt(3, 42)[static_cast<size_t>(place)]};
    Fixture f(limits_of(true));
    const auto answers = run(f.scheduler, {request});
    EXPECT_EQ(answers[0]->ends[0].first, Finish::Stop);
    EXPECT_EQ(answers[0]->tokens[0].back().id, request.eos[0]);
    EXPECT_EQ(static_cast<int>(answers[0]->tokens[0].size()), place) << "the first of them ends the answer";
    EXPECT_EQ(f.scheduler.statistics().generation_tokens, place);
    compare({request}, 100);
  }
}

TEST(Speculation, EndsAtMaxTokensAndDraftsNothingBehind) {
  for (int64_t count = 1; count < 16; ++count) {
    Fixture f(limits_of(true));
    const auto answers = run(f.scheduler, {request_for(2, count)});
    EXPECT_EQ(static_cast<int64_t>(answers[0]->tokens[0].size()), count);
    EXPECT_EQ(answers[0]->ends[0].first, Finish::Length);
    const Statistics s = f.scheduler.statistics();
    EXPECT_EQ(s.draft_tokens, s.accepted_tokens) << "all are right, and none is behind the end";
  }
}

TEST(Speculation, ForcesTheLastTokenAsWithoutDrafts) {
  std::vector<Request> requests;
  for (int i = 0; i < 8; ++i) {
    requests.push_back(request_for(i, 6 + i));
    requests.back().sampling.forced_eos = 11;
    requests.back().eos = {11};
    if (i % 2) requests.back().logprobs = 0;
  }
  EXPECT_GT(compare(requests, 100).accepted_tokens, 8);
}

TEST(Speculation, ChangesNoAnswerUnderPreemption) {
  std::vector<Request> requests;
  for (int i = 0; i < 10; ++i) {
    requests.push_back(request_for(i, 60, i % 3 ? 9 : 0));
    if (i % 2) requests.back().sampling = {.do_sample = true, .seed = 9};
    if (i % 4 == 3) requests.back().search.num_return_sequences = 3;
  }
  const Statistics s = compare(requests, 7, 26);
  EXPECT_GT(s.preempted, 0);
  EXPECT_GT(s.accepted_tokens, 30);
}

TEST(Speculation, LeavesBeamsAlone) {
  Request request = request_for(1, 30);
  request.search = {.num_beams = 3, .num_return_sequences = 2};
  EXPECT_EQ(compare({request}, 3).drafts, 0);
}

TEST(Speculation, ChangesNoAnswerInAPipeline) {
  std::vector<Request> requests;
  for (int i = 0; i < 10; ++i) {
    requests.push_back(request_for(i, 40, i % 3 ? 6 : 0));
    if (i % 2) requests.back().sampling = {.do_sample = true, .seed = 2};
  }
  std::vector<std::unique_ptr<Answers>> answers[2];
  for (const bool speculates : {false, true}) {
    StagedDpRank staged(3, 200);
    staged.last().sharpness = 7;
    Limits limits = limits_of(speculates);
    limits.pipeline_batches = 3;
    Scheduler scheduler(staged.dp_rank(), limits);
    answers[speculates] = run(scheduler, requests);
    EXPECT_EQ(scheduler.statistics().accepted_tokens > 30, speculates);
  }
  expect_equal(answers[1], answers[0]);
}

/// Bans every seventh token, which ones depends on all tokens so far. The answer ends after `length` tokens, or with an
/// end token from there on.
class Sums final : public TokenConstraint {
 public:
  Sums(int64_t length, bool open_end, int64_t fails_at = -1)
      : length_(length), fails_at_(fails_at), open_end_(open_end) {}
  std::unique_ptr<TokenConstraint> fork() const override { return std::make_unique<Sums>(*this); }
  TokenMask next() override {
    if (tokens_ == fails_at_) throw std::runtime_error("the mask takes too much");
    may_end_ = open_end_ && tokens_ >= length_;
    TokenMask mask{.words = std::vector<uint32_t>((vocabulary + 31) / 32), .may_end = may_end_};
    for (int32_t id = 0; id < vocabulary; ++id)
      if (fits(id)) mask.words[static_cast<size_t>(id) / 32] |= 1U << (id % 32);
    return mask;
  }
  bool may_end() const override { return may_end_; }
  bool append(int32_t id) override {
    if (!fits(id)) throw std::runtime_error("token " + std::to_string(id) + " does not fit");
    may_end_ = false;
    sum_ += id;
    return ++tokens_ >= length_ && !open_end_;
  }

 private:
  bool fits(int32_t id) const { return (id + sum_) % 7 != 3; }
  int64_t length_, fails_at_, sum_ = 0, tokens_ = 0;
  bool open_end_, may_end_ = false;
};

TEST(Speculation, MasksEveryDraftByTheConstraintAfterThoseBefore) {
  for (const bool device_sampling : {false, true}) {
    std::vector<Request> requests;
    for (int i = 0; i < 14; ++i) {
      Request request = request_for(i, 40, i % 4 == 3 ? 9 : 0);
      const bool open_end = i % 3 == 1;
      request.constraint = std::make_shared<Sums>(5 + 2 * i, open_end, i == 13 ? 9 : -1);
      if (open_end) request.eos = {known_prompt(1 + i, 60)[static_cast<size_t>(5 + 2 * i + 1)]};
      if (i % 2) request.sampling = {.do_sample = true, .seed = static_cast<uint64_t>(i)};
      if (i == 7) request.search.num_return_sequences = 3;
      if (i == 8) request.sampling.repetition_penalty = 1.1;
      requests.push_back(request);
    }
    const Statistics s = compare(requests, 6, 200, device_sampling);
    EXPECT_GT(s.accepted_tokens, 20);
    EXPECT_GT(s.draft_tokens, s.accepted_tokens);
  }
}

TEST(Speculation, FailsAtTheTokenWhoseMaskCannotBeHad) {
  Fixture f(limits_of(true));
  Request request = request_for(2, 40);
  request.constraint = std::make_shared<Sums>(30, false, 6);
  const auto answers = run(f.scheduler, {request});
  EXPECT_EQ(answers[0]->ends[0], (std::pair<Finish, std::string>(Finish::Failed, "the mask takes too much")));
  EXPECT_EQ(answers[0]->tokens[0].size(), 6);
}

TEST(Speculation, EndsAConstraintWithAnEndTokenBehindAnAcceptedDraft) {
  int64_t accepted = 0;
  for (int i = 0; i < 20; ++i) {
    Request request = request_for(i, 40);
    request.constraint = std::make_shared<Sums>(4, true);
    for (size_t place = 6; place < 10; ++place) request.eos.push_back(known_prompt(1 + i, 60)[place]);
    accepted += compare({request}, 100).accepted_tokens;
  }
  EXPECT_GT(accepted, 20);
}

TEST(Speculation, LeavesThePrefixCacheWithoutRejectedDrafts) {
  Fixture f(limits_of(true));
  const std::vector<int32_t> prompt = known_prompt(5, 60, 7);
  Replies first(1), again(1);
  submit(f, request_of("first", prompt, 60), first);
  first.wait();
  EXPECT_GT(f.scheduler.statistics().draft_tokens, f.scheduler.statistics().accepted_tokens);
  std::vector<int32_t> turn = prompt;
  turn.insert(turn.end(), first.tokens[0].begin(), first.tokens[0].end());
  submit(f, request_of("again", turn, 20), again);
  again.wait();
  EXPECT_EQ(again.cached, (static_cast<int64_t>(turn.size()) - 1) / 16 * 16) << "accepted drafts are in it";
  EXPECT_EQ(again.tokens[0], expected(turn, 20));
}

TEST(Speculation, IsOffForRecurrentModelsAndWholeSequences) {
  Limits recurrent = limits_of(true);
  recurrent.recurrent = true;
  Fixture f(recurrent);
  Replies answer(1);
  submit(f, request_of("a", known_prompt(3, 60), 50), answer);
  answer.wait();
  EXPECT_EQ(answer.tokens[0], expected(known_prompt(3, 60), 50));
  EXPECT_EQ(f.scheduler.statistics().drafts, 0);
}

TEST(Speculation, RestartsALongRopeSequenceAtTheSameToken) {
  std::vector<std::vector<int32_t>> answers;
  for (const bool speculates : {false, true}) {
    Limits limits = limits_of(speculates);
    limits.short_rope_tokens = 70;
    Fixture f(limits);
    Replies answer(1);
    submit(f, request_of("a", known_prompt(3, 60), 50), answer);
    answer.wait();
    answers.push_back(answer.tokens[0]);
    EXPECT_EQ(f.scheduler.statistics().accepted_tokens > 0, speculates);
  }
  EXPECT_EQ(answers[0], answers[1]);
}

}  // namespace
}  // namespace pm::engine
