// SPDX-License-Identifier: Apache-2.0
// Tests what is drafted, how much, and when drafting pauses.
#include <gmock/gmock.h>

#include "worker/engine/speculation/draft_cost.h"
#include "worker/engine/speculation/drafter.h"

namespace pm::engine {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<int32_t> propose(std::vector<int32_t> tokens, int64_t count, int64_t min_ngram = 2, int64_t max_ngram = 4) {
  const DraftRequest request{.tokens = tokens, .count = count};
  return ngram_drafter({min_ngram, max_ngram})->propose({&request, 1}).tokens.at(0);
}

TEST(NgramDrafter, ProposesWhatFollowedTheSameTokens) {
  EXPECT_THAT(propose({1, 2, 3, 4, 5, 9, 1, 2}, 3), ElementsAre(3, 4, 5));
}

TEST(NgramDrafter, PrefersTheLongestOccurrenceAndOfEqualOnesTheLatest) {
  EXPECT_THAT(propose({7, 1, 2, 30, 8, 1, 2, 40, 7, 1, 2}, 1), ElementsAre(30)) << "three tokens are the same";
  EXPECT_THAT(propose({7, 1, 2, 30, 8, 1, 2, 40, 7, 1, 2}, 1, 1, 2), ElementsAre(40)) << "only two count";
}

TEST(NgramDrafter, ProposesNothingWithoutAnOccurrenceOfTheMinimum) {
  EXPECT_THAT(propose({1, 2, 3, 9, 2}, 3), IsEmpty());
  EXPECT_THAT(propose({1, 2, 3, 9, 2}, 3, 1), ElementsAre(3, 9, 2));
  EXPECT_THAT(propose({1, 2, 3, 4}, 3, 1), IsEmpty());
  EXPECT_THAT(propose({1}, 3, 1), IsEmpty());
}

TEST(NgramDrafter, ContinuesAPeriodBeyondTheEnd) {
  EXPECT_THAT(propose({5, 1, 2, 3, 1, 2, 3, 1}, 7), ElementsAre(2, 3, 1, 2, 3, 1, 2));
  EXPECT_THAT(propose({4, 4, 4}, 3), ElementsAre(4, 4, 4));
}

TEST(NgramDrafter, MatchesAtTheBeginningOfTheSequence) { EXPECT_THAT(propose({1, 2, 1, 2}, 2), ElementsAre(1, 2)); }

TEST(DraftGain, IsTheExpectedTokensLessTheirCost) { EXPECT_DOUBLE_EQ(draft_gain(0.5, 2, 0.1), 0.5 + 0.25 - 2 * 0.1); }

TEST(DraftGain, IsLargestAtTheBestLength) {
  for (const double rate : {0.05, 0.3, 0.6, 0.9, 0.99}) {
    for (const double row : {0.02, 0.25, 0.7, 1.0}) {
      const int64_t best = best_draft_length(rate, 8, row);
      for (int64_t count = 1; count <= 8; ++count)
        EXPECT_GE(draft_gain(rate, best, row), draft_gain(rate, count, row)) << rate << " " << row << " " << count;
    }
  }
  EXPECT_EQ(best_draft_length(0.8, 8, 0.25), 6) << "0.8^6 is more than the cost of a row, 0.8^7 is not";
}

TEST(DraftLength, BeginsBetweenTheRateOfOthersAndHope) {
  DraftLength length;
  length.begin(0.2);
  EXPECT_DOUBLE_EQ(length.rate(), 0.5);
}

TEST(DraftLength, PausesWhenItsDraftsDoNotPayAndLongerEachTime) {
  DraftLength length;
  EXPECT_TRUE(length.may_draft());
  int64_t rejected = 0;
  while (!length.observe(4, 0, 8, 0.25)) ++rejected;
  EXPECT_LT(rejected, 8);
  for (const int64_t pause : {8, 16, 32, 64, 128, 256, 512, 512}) {
    for (int64_t i = 0; i < pause; ++i) ASSERT_FALSE(length.may_draft()) << pause;
    ASSERT_TRUE(length.may_draft()) << "a trial";
    ASSERT_TRUE(length.may_draft()) << "until there was one";
    ASSERT_TRUE(length.observe(1, 0, 8, 0.25));
  }
  for (int64_t i = 0; i < 512; ++i) ASSERT_FALSE(length.may_draft());
  EXPECT_FALSE(length.observe(8, 8, 8, 0.25));
  EXPECT_TRUE(length.may_draft());
}

TEST(DraftLength, GrowsAgainWithAcceptedDrafts) {
  DraftLength length;
  while (!length.observe(4, 0, 8, 0.25)) {
  }
  for (int step = 0; step < 20; ++step) {
    const int64_t drafts = best_draft_length(length.rate(), 8, 0.25);
    length.observe(drafts, drafts, 8, 0.25);
  }
  EXPECT_GT(length.rate(), 0.8);
  EXPECT_EQ(best_draft_length(length.rate(), 8, 0.25), 8);
}

TEST(DraftTrials, AreRarerUntilOnePays) {
  DraftTrials trials;
  for (const int interval : {8, 16, 32, 64, 128, 128}) {
    for (int step = 1; step < interval; ++step) ASSERT_FALSE(trials.next()) << interval;
    ASSERT_TRUE(trials.next()) << interval;
    EXPECT_TRUE(trials.next()) << "no sequence had anything to try";
    trials.tried();
  }
  trials.paid();
  for (int step = 1; step < 8; ++step) ASSERT_FALSE(trials.next());
  EXPECT_TRUE(trials.next());
}

TEST(DraftLength, LearnsNothingFromDraftsBehindTheFirstRejectedOne) {
  DraftLength one, four;
  one.observe(1, 0, 8, 0.25);
  four.observe(4, 0, 8, 0.25);
  EXPECT_EQ(one.rate(), four.rate());
}

TEST(DraftCost, IsAGuessUntilBothKindsOfStepsWereMeasured) {
  DraftCost cost;
  for (int i = 0; i < 10; ++i) cost.observe(1, 4, 1.0);
  EXPECT_EQ(cost.price(1).row, DraftPrice{}.row);
  cost.observe(1, 0, 1.0);
  for (int i = 0; i < 10; ++i) cost.observe(1, 4, 1.4);
  EXPECT_NEAR(cost.price(1).row, 0.1, 1e-9) << "four rows make a step 40 % longer";
  EXPECT_EQ(cost.price(1).step, 0);
  EXPECT_EQ(cost.price(8).row, DraftPrice{}.row) << "of another load";
}

TEST(DraftCost, SeparatesTheCostOfTheStepFromThatOfItsRows) {
  DraftCost cost;
  cost.observe(2, 0, 1.0);
  // a step with drafts is 50 % longer, and each row takes 5 % more; the plain step makes two tokens
  for (int i = 0; i < 60; ++i) cost.observe(2, 2 + i % 6, 1.5 + 0.05 * (2 + i % 6));
  EXPECT_NEAR(cost.price(2).row, 0.1, 1e-6);
  EXPECT_NEAR(cost.price(2).step, 1, 1e-6) << "one half of the two tokens of a plain step";
}

TEST(DraftCost, OfARowIsAtMostAToken) {
  DraftCost cost;
  cost.observe(32, 0, 1.0);
  for (int i = 0; i < 10; ++i) cost.observe(32, 32, 3.0);
  EXPECT_EQ(cost.price(32).row, 1);
}

TEST(DraftCost, AsksForAStepWithoutDraftsSoonAndThenNowAndThen) {
  DraftCost cost;
  int64_t plain = 0;
  for (int i = 0; i < 650; ++i) {
    const bool drafts = cost.may_draft(4);
    cost.planned(4, drafts ? 8 : 0);
    plain += !drafts;
  }
  EXPECT_EQ(plain, 10);
  for (const int64_t sequences : {1, 9}) {
    for (int i = 0; i < 8; ++i) {
      ASSERT_TRUE(cost.may_draft(sequences)) << "another load; step " << i;
      cost.planned(sequences, 1);
    }
    EXPECT_FALSE(cost.may_draft(sequences));
  }
}

}  // namespace
}  // namespace pm::engine
