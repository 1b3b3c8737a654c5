// SPDX-License-Identifier: Apache-2.0
// The candidates of RAG-Sequence: which are equal, what is scored, and their order.
#include "worker/server/retrieval/answer_scores.h"

#include <gmock/gmock.h>

#include <cmath>

namespace pm::server {
namespace {

using testing::ElementsAre;

const policy::Retrieval retrieval{.marginal = policy::Marginal::Sequence, .bos = 0, .pad = 1};

AnswerCandidate of(std::vector<int32_t> tokens) {
  AnswerCandidate candidate;
  candidate.tokens = std::move(tokens);
  return candidate;
}

TEST(AnswerScores, PaddingBehindIsRemovedAndEqualCandidatesCountOnce) {
  std::vector<AnswerCandidate> candidates{of({2, 5, 1, 1}), of({2, 6}), of({2, 5}), of({2, 1, 5})};
  policy::Retrieval all = retrieval;
  all.deduplicate = false;
  std::vector<AnswerCandidate> kept = candidates;
  prepare_candidates(kept, all);
  EXPECT_EQ(kept.size(), 4u);
  prepare_candidates(candidates, retrieval);
  ASSERT_EQ(candidates.size(), 3u);
  EXPECT_THAT(candidates[0].tokens, ElementsAre(2, 5));
  EXPECT_THAT(candidates[1].tokens, ElementsAre(2, 6));
  EXPECT_THAT(candidates[2].tokens, ElementsAre(2, 1, 5)) << "padding before another token stays";
}

TEST(AnswerScores, AFirstTokenThatAllHaveIsTheModelsBosOrNone) {
  EXPECT_TRUE(begin_with_bos(std::vector{of({2, 0, 5}), of({2, 0})}, retrieval));
  EXPECT_FALSE(begin_with_bos(std::vector{of({2, 0, 5}), of({2, 5})}, retrieval));
  policy::Retrieval none = retrieval;
  none.bos = -1;
  EXPECT_FALSE(begin_with_bos(std::vector{of({2, 0})}, none));
}

/// Logits of 4 tokens whose probabilities are 1/2, 1/4, 1/8, 1/8 at each position.
std::vector<float> logits(size_t positions) {
  std::vector<float> all;
  for (size_t i = 0; i < positions; ++i)
    for (const float probability : {0.5F, 0.25F, 0.125F, 0.125F}) all.push_back(std::log(probability));
  return all;
}

TEST(AnswerScores, TheWeightOfAPassageCountsWithTheSecondToken) {
  const double log_weight = std::log(0.5), half = std::log(0.5);
  AnswerCandidate candidate = of({3, 0, 2, 0});  // targets 0, 2, 0 and padding
  score_passage(candidate, logits(4), log_weight, false, retrieval);
  EXPECT_NEAR(candidate.likelihood[0], half + 3 * half + half + log_weight, 1e-6);
  score_passage(candidate, logits(4), log_weight, true, retrieval);
  EXPECT_NEAR(candidate.likelihood[1], 3 * half + half + log_weight, 1e-6) << "without the first token";
  AnswerCandidate shorter = of({3, 0});  // target 0, then padding: no second token is scored
  score_passage(shorter, logits(2), log_weight, false, retrieval);
  EXPECT_NEAR(shorter.likelihood[0], half, 1e-6);
}

TEST(AnswerScores, AnswersAreRankedByTheSumOverPassages) {
  std::vector<AnswerCandidate> candidates{of({0}), of({1}), of({2})};
  candidates[0].likelihood = {std::log(0.3), std::log(0.1)};
  candidates[1].likelihood = {std::log(0.25), std::log(0.25)};
  candidates[2].likelihood = {-2000, -2000};  // its probability is 0 in floats, its logarithm is not
  rank_candidates(candidates);
  EXPECT_EQ(candidates[0].tokens[0], 1);
  EXPECT_NEAR(candidates[0].score, std::log(0.5), 1e-9);
  EXPECT_EQ(candidates[1].tokens[0], 0);
  EXPECT_NEAR(candidates[2].score, -2000 + std::log(2), 1e-9);
}

}  // namespace
}  // namespace pm::server
