// SPDX-License-Identifier: Apache-2.0
// Tests what a draft model proposes and how much it computes for that, and that answers with one are those without.
#include <gmock/gmock.h>

#include "tests/unit/worker/engine/replies.h"
#include "worker/engine/speculation/draft_model.h"

namespace pm::engine {
namespace {

using testing::ElementsAreArray;
using testing::IsEmpty;

DraftModel::Limits small_limits() {
  return {
      .vocabulary = vocabulary, .target_vocabulary = vocabulary, .positions = 512, .kv_blocks = 40, .step_tokens = 64};
}

/// A draft model that guesses right: it is the summing executor.
struct Guess {
  explicit Guess(const DraftModel::Limits& limits = small_limits(), bool device_sampling = false)
      : executor(new SummingExecutor(limits.kv_blocks, device_sampling)),
        model(std::make_shared<DraftModel>(std::make_unique<Rank>(std::unique_ptr<parallel::Executor>(executor)),
                                           limits)),
        drafter(DraftModel::drafter(model)) {}
  Drafts propose(const std::vector<int32_t>& tokens, int64_t count, int32_t slot = 0, SamplingParams how = {}) {
    const DraftRequest request{.slot = slot, .tokens = tokens, .count = count, .sampling = &how};
    return drafter->propose({&request, 1});
  }
  std::vector<int32_t> drafts(const std::vector<int32_t>& tokens, int64_t count, int32_t slot = 0,
                              SamplingParams how = {}) {
    return propose(tokens, count, slot, std::move(how)).tokens.at(0);
  }
  SummingExecutor* executor;
  std::shared_ptr<DraftModel> model;
  std::unique_ptr<Drafter> drafter;
};

std::vector<int32_t> joined(std::vector<int32_t> tokens, const std::vector<int32_t>& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

TEST(DraftModel, ProposesWhatItWouldAnswer) {
  Guess guess;
  EXPECT_THAT(guess.drafts(prompt_of(1, 20), 5), ElementsAreArray(expected(prompt_of(1, 20), 5)));
  EXPECT_EQ(guess.executor->computed, 20 + 4) << "no row of the last draft";
}

TEST(DraftModel, GoesOnBehindAcceptedAndRejectedDrafts) {
  Guess guess;
  std::vector<int32_t> tokens = prompt_of(1, 30);
  for (const size_t accepted : {5, 0, 3, 4, 1, 5, 2}) {
    const std::vector<int32_t> drafts = guess.drafts(tokens, 5);
    ASSERT_THAT(drafts, ElementsAreArray(expected(tokens, 5)));
    tokens.insert(tokens.end(), drafts.begin(), drafts.begin() + static_cast<std::ptrdiff_t>(accepted));
    tokens.push_back((accepted < 5 ? drafts[accepted] + 1 : expected(tokens, 1)[0]) % vocabulary);  // what came instead
    const int64_t before = guess.executor->computed;
    EXPECT_THAT(guess.drafts(tokens, 1), ElementsAreArray(expected(tokens, 1)));
    EXPECT_EQ(guess.executor->computed - before, accepted == 5 ? 2 : 1) << "only what is new";
  }
}

TEST(DraftModel, DraftsForSequencesTogether) {
  Guess guess;
  const std::vector<int32_t> one = prompt_of(1, 45), two = prompt_of(2, 9), three = prompt_of(3, 3);
  const SamplingParams greedy;
  const DraftRequest requests[] = {{.slot = 4, .tokens = one, .count = 2, .sampling = &greedy},
                                   {.slot = 1, .tokens = two, .count = 5, .sampling = &greedy},
                                   {.slot = 2, .tokens = three, .count = 1, .sampling = &greedy}};
  const Drafts drafts = guess.drafter->propose(requests);
  EXPECT_THAT(drafts.tokens[0], ElementsAreArray(expected(one, 2)));
  EXPECT_THAT(drafts.tokens[1], ElementsAreArray(expected(two, 5)));
  EXPECT_THAT(drafts.tokens[2], ElementsAreArray(expected(three, 1)));
  EXPECT_TRUE(drafts.read_texts);
  EXPECT_FALSE(guess.propose(joined(one, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), 1, 4).read_texts)
      << "a pause, after which the cost of drafts is learned again";
}

TEST(DraftModel, ReadsALongTextOverSeveralProposalsAndDelaysNoOther) {
  Guess guess;
  const std::vector<int32_t> text = prompt_of(1, 150), other = prompt_of(2, 10);
  const SamplingParams greedy;
  const DraftRequest requests[] = {{.slot = 0, .tokens = text, .count = 3, .sampling = &greedy},
                                   {.slot = 1, .tokens = other, .count = 3, .sampling = &greedy}};
  const Drafts first = guess.drafter->propose(requests);
  EXPECT_THAT(first.tokens[0], IsEmpty());
  EXPECT_THAT(first.tokens[1], ElementsAreArray(expected(other, 3)));
  EXPECT_TRUE(first.read_texts);
  EXPECT_EQ(guess.executor->widest, 64);
  EXPECT_THAT(guess.drafts(text, 3), IsEmpty());
  EXPECT_THAT(guess.drafts(text, 3), ElementsAreArray(expected(text, 3)));
  EXPECT_EQ(guess.executor->computed, 150 + 10 + 4) << "each token once";
  EXPECT_FALSE(guess.propose(joined(text, {7}), 3).read_texts);
}

TEST(DraftModel, ReadsACommonBeginningOnce) {
  Guess guess;
  const std::vector<int32_t> text = prompt_of(1, 40);
  guess.drafts(text, 2, 0);
  guess.drafts(joined(text, {5}), 2, 0);  // now it is known that the first tokens are the sequence's
  const int64_t before = guess.executor->computed;
  EXPECT_THAT(guess.drafts(joined(text, {9}), 2, 1), ElementsAreArray(expected(joined(text, {9}), 2)));
  EXPECT_EQ(guess.executor->computed - before, 41 - 32 + 1) << "two blocks are shared";
  guess.drafter->forget(0);
  EXPECT_THAT(guess.drafts(joined(text, {9, 8}), 2, 1), ElementsAreArray(expected(joined(text, {9, 8}), 2)));
}

TEST(DraftModel, BeginsAnewWhereAnotherSequenceHasTheSlot) {
  Guess guess;
  guess.drafts(prompt_of(1, 40), 4);
  EXPECT_THAT(guess.drafts(prompt_of(2, 35), 4), ElementsAreArray(expected(prompt_of(2, 35), 4)));
  guess.drafter->forget(0);
  EXPECT_THAT(guess.drafts(prompt_of(3, 12), 4), ElementsAreArray(expected(prompt_of(3, 12), 4)));
}

TEST(DraftModel, DraftsForNobodyWithoutBlocksAndGoesOnWhenSomeAreFree) {
  DraftModel::Limits limits = small_limits();
  limits.kv_blocks = 4;
  Guess guess(limits);
  EXPECT_THAT(guess.drafts(prompt_of(1, 40), 4, 0), ElementsAreArray(expected(prompt_of(1, 40), 4)));
  EXPECT_THAT(guess.drafts(prompt_of(2, 30), 4, 1), IsEmpty());
  EXPECT_THAT(guess.drafts(joined(prompt_of(1, 40), {3}), 4, 0),
              ElementsAreArray(expected(joined(prompt_of(1, 40), {3}), 4)));
  guess.drafter->forget(0);
  EXPECT_THAT(guess.drafts(prompt_of(2, 30), 4, 1), ElementsAreArray(expected(prompt_of(2, 30), 4)));
  guess.drafter.reset();
  EXPECT_THAT(DraftModel::drafter(guess.model)->propose({}).tokens, IsEmpty());
}

TEST(DraftModel, StaysWithinPositionsAndVocabularies) {
  DraftModel::Limits limits = small_limits();
  limits.positions = 22;
  limits.vocabulary = 90;
  Guess guess(limits);
  std::vector<int32_t> tokens(20, 1);
  EXPECT_EQ(guess.drafts(tokens, 8).size(), 3) << "rows 20 and 21, and the first draft comes from row 19";
  EXPECT_THAT(guess.drafts(joined(tokens, {90}), 8, 1), IsEmpty()) << "an id that it does not know";
  EXPECT_THAT(guess.drafts(std::vector<int32_t>(23, 1), 8, 2), IsEmpty());
  limits = small_limits();
  const std::vector<int32_t> prompt = prompt_of(1, 20), answer = expected(prompt, 8);
  limits.target_vocabulary = answer[2];
  const auto known = std::find_if(answer.begin(), answer.end(), [&](int32_t id) { return id >= answer[2]; });
  EXPECT_THAT(Guess(limits).drafts(prompt, 8), ElementsAreArray(answer.begin(), known));
}

TEST(DraftModel, EndsBehindAnEndToken) {
  const std::vector<int32_t> prompt = prompt_of(1, 20), answer = expected(prompt, 8);
  Guess guess;
  EXPECT_THAT(guess.drafts(prompt, 8, 0, {.eos = {answer[3]}}),
              ElementsAreArray(answer.begin(), std::find(answer.begin(), answer.end(), answer[3]) + 1));
}

TEST(DraftModel, FailsForItselfAlone) {
  Guess guess;
  guess.executor->fail = true;
  EXPECT_THAT(guess.drafts(prompt_of(1, 20), 8), IsEmpty());
  guess.executor->fail = false;
  EXPECT_THAT(guess.drafts(prompt_of(1, 20), 8), IsEmpty()) << "what it had computed is not known any more";
}

/// Runs requests with and without the draft model; returns the counters of speculation.
Statistics compare(bool device_sampling, float draft_sharpness, int64_t kv_blocks) {
  Guess guess(small_limits(), device_sampling);
  guess.executor->sharpness = draft_sharpness;
  return expect_the_answers_without({6, [&] { return DraftModel::drafter(guess.model); }}, device_sampling, kv_blocks);
}

TEST(DraftModel, ChangesNoAnswer) {
  for (const bool device_sampling : {false, true}) {
    const Statistics same = compare(device_sampling, 4, 200);
    EXPECT_GT(same.accepted_tokens, 100);
    EXPECT_EQ(same.accepted_tokens, same.draft_tokens) << "equal scores and random numbers draw equal tokens";
    const Statistics flatter = compare(device_sampling, 3, 200);
    EXPECT_GT(flatter.accepted_tokens, 50);
    EXPECT_LT(flatter.accepted_tokens, flatter.draft_tokens);
    EXPECT_GT(compare(device_sampling, 4, 16).preempted, 0);
  }
}

}  // namespace
}  // namespace pm::engine
