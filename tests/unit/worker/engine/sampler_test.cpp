// SPDX-License-Identifier: Apache-2.0
// Tests of the sampler and of Philox with known scores, frequencies and random numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "worker/engine/sampling/philox.h"
#include "worker/engine/sampling/sampler.h"

namespace pm::engine {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

TEST(Philox, GivesThePublishedVectors) {  // known answers of the Random123 distribution, philox4x32 with 10 rounds
  EXPECT_EQ(philox(0, {0, 0, 0, 0}), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(0xffffffffffffffffULL, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Sampler, KeepsTheTopKAndWhatEqualsTheLast) {
  const std::vector<float> logits{1, 3, 2, 2, 0};
  EXPECT_EQ(process_logits(logits, {true, 1, 2, 1, 0}), (std::vector<float>{minus_infinity, 3, 2, 2, minus_infinity}));
}

TEST(Sampler, KeepsTheSmallestSetThatReachesTopP) {
  const std::vector<float> logits{std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)};
  const auto scores = process_logits(logits, {true, 1, 0, 0.7, 0});
  EXPECT_EQ(scores[2], minus_infinity);
  EXPECT_EQ(scores[3], minus_infinity);
  EXPECT_GT(scores[1], minus_infinity);
}

TEST(Sampler, SuppressedTokensAreBannedAndOthersOnlyAsTheFirst) {
  const std::vector<float> logits{1, 4, 3, 2};
  const SamplingParams sampling{.suppress_tokens = {1, 99, -1}, .begin_suppress_tokens = {2}};
  const std::vector<int32_t> tokens{0, 0, 3};
  const auto first = process_logits(logits, sampling, {std::span(tokens).first(2), 2});
  EXPECT_EQ(first, (std::vector<float>{1, minus_infinity, minus_infinity, 2}));
  EXPECT_EQ(process_logits(logits, sampling, {tokens, 2}), (std::vector<float>{1, minus_infinity, 3, 2}));
  SamplingParams forced = sampling;  // the token behind the start is forced, so that the answer begins behind it
  forced.forced_bos = 3;
  EXPECT_EQ(process_logits(logits, forced, {std::span(tokens).first(2), 1})[2], minus_infinity);
}

TEST(Sampler, IdsThatAreTogetherMoreProbableExcludeTheOthers) {
  TokenMask mask{.words = {0b11111}, .joint_from = 3};
  const std::vector<float> close{0, 2, 1, 1.5F, 1.4F};  // 1.5 and 1.4 are together 2.14
  EXPECT_EQ(process_logits(close, {}, {}, 1, &mask),
            (std::vector<float>{minus_infinity, minus_infinity, minus_infinity, 1.5F, 1.4F}));
  const std::vector<float> less{0, 2.2F, 1, 1.5F, 1.4F};
  EXPECT_EQ(process_logits(less, {}, {}, 1, &mask), less);
  mask.words = {0b10111};  // what is not allowed counts for nothing
  EXPECT_EQ(process_logits(close, {}, {}, 1, &mask)[1], 2);
  mask.words = {0b00111};
  EXPECT_EQ(process_logits(close, {}, {}, 1, &mask)[2], 1);
  mask.words = {0b11111};
  mask.joint_from = -1;
  EXPECT_EQ(process_logits(close, {}, {}, 1, &mask), close);
}

TEST(Sampler, DividesByTemperatureFirst) {
  EXPECT_EQ(process_logits(std::vector<float>{2, 4}, {true, 2, 0, 1, 0}), (std::vector<float>{1, 2}));
}

TEST(Sampler, SamplesWithTheFrequenciesOfTheSoftmax) {
  const std::vector<double> p{0.5, 0.25, 0.2, 0.05};
  std::vector<float> logits;
  for (double x : p) logits.push_back(static_cast<float>(std::log(x)));
  std::vector<int> count(p.size());
  const int samples = 20000;
  for (int i = 0; i < samples; ++i)
    ++count[static_cast<size_t>(sample_token(logits, {true, 1, 0, 1, 9}, {}, uniform(9, 0, static_cast<uint64_t>(i))))];
  double chi_square = 0;
  for (size_t i = 0; i < p.size(); ++i) chi_square += std::pow(count[i] - samples * p[i], 2) / (samples * p[i]);
  EXPECT_LT(chi_square, 16.27);  // 3 degrees of freedom, p = 0.001; the random numbers are fixed
}

TEST(Sampler, SamplesBeamsWithoutReplacement) {
  const std::vector<double> p{0.5, 0.25, 0.2, 0.05};
  std::vector<float> logits;
  for (double x : p) logits.push_back(static_cast<float>(std::log(x)));
  const int samples = 20000;
  std::vector<double> first(p.size()), second_after_0(p.size());
  std::vector<int32_t> history;
  SamplingParams sampling{.do_sample = true};
  for (int i = 0; i < samples; ++i) {
    sampling.seed = static_cast<uint64_t>(i);
    const auto candidates = beam_candidates(logits, sampling, {history, 0}, {0, {0.f}, 2});
    ASSERT_EQ(candidates.size(), 2u);
    ASSERT_NE(candidates[0].id, candidates[1].id);
    EXPECT_FLOAT_EQ(candidates[0].score, logits[static_cast<size_t>(candidates[0].id)])
        << "the score is the log-probability, without the Gumbel noise";
    ++first[static_cast<size_t>(candidates[0].id)];
    if (candidates[0].id == 0) ++second_after_0[static_cast<size_t>(candidates[1].id)];
  }
  double chi_square = 0, chi_square_second = 0;
  for (size_t i = 0; i < p.size(); ++i) chi_square += std::pow(first[i] - samples * p[i], 2) / (samples * p[i]);
  for (size_t i = 1; i < p.size(); ++i)
    chi_square_second += std::pow(second_after_0[i] - first[0] * p[i] / 0.5, 2) / (first[0] * p[i] / 0.5);
  EXPECT_LT(chi_square, 16.27);  // 3 and 2 degrees of freedom, p = 0.001
  EXPECT_LT(chi_square_second, 13.82);
}

TEST(Sampler, NeverSamplesARemovedTokenEvenAtTheEndOfTheRange) {
  EXPECT_EQ(sample_token(std::vector<float>{1, 2, 3}, {true, 1, 1, 1, 0}, {}, 0.9999999999999999), 2);
  EXPECT_EQ(sample_token(std::vector<float>{3, 2, 1}, {true, 1, 1, 1, 0}, {}, 0.9999999999999999), 0);
}

TEST(Sampler, GreedyTakesTheBestOfTheEditedScoresAndTheSmallerOfEquals) {
  const std::vector<float> logits{1, 3, 3, 2};
  EXPECT_EQ(sample_token(logits, {}, {}, 0.5), 1);
  const std::vector<int32_t> said{7, 1};
  EXPECT_EQ(sample_token(logits, {.repetition_penalty = 2}, {said, 2}, 0.5), 2);
  EXPECT_EQ(sample_token(logits, {.presence_penalty = 2}, {said, 2}, 0.5), 1) << "tokens of the prompt do not count";
  EXPECT_EQ(sample_token(logits, {.presence_penalty = 2}, {said, 1}, 0.5), 2);
}

TEST(Sampler, ABiasAddsToTheLogitAfterPenaltiesAndEndsNoBan) {
  const std::vector<float> logits{1, 3, 2};
  const std::vector<int32_t> said{0, 0};
  EXPECT_EQ(process_logits(logits, {.logit_bias = {{0, 4.5}, {2, -100}, {99, 1}}}, {}),
            (std::vector<float>{5.5, 3, -98}));
  EXPECT_EQ(process_logits(logits, {.repetition_penalty = 2, .presence_penalty = 1, .logit_bias = {{0, 4}}}, {said, 1}),
            (std::vector<float>{3.5, 3, 2}));
  EXPECT_EQ(sample_token(logits, {.bad_words = {{1}}, .logit_bias = {{1, 100}}}, {}, 0.5), 2);
}

TEST(Sampler, ReturnsATokenEvenWhenAllAreBanned) {
  EXPECT_EQ(sample_token(std::vector<float>{1, 2}, {.do_sample = true, .bad_words = {{0}, {1}}}, {}, 0.5), 0);
}

TEST(Sampler, IgnoresIdsOutsideTheVocabulary) {
  const std::vector<int32_t> said{-1, 99};
  const SamplingParams sampling{
      .repetition_penalty = 2, .presence_penalty = 1, .min_new_tokens = 5, .bad_words = {{42}, {}}, .eos = {77, -3}};
  EXPECT_EQ(process_logits(std::vector<float>{1, 2}, sampling, {said, 0}), (std::vector<float>{1, 2}));
}

}  // namespace
}  // namespace pm::engine
