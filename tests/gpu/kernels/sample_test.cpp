// SPDX-License-Identifier: Apache-2.0
// Token sampling on the device, compared with the host's sampler and with the frequencies that the logits imply.
#include "worker/ops/cuda/sample.h"
#include "tests/gpu/kernels/device.h"
#include "worker/engine/sampling/philox.h"
#include "worker/engine/sampling/sampler.h"

namespace pm::cuda_test {
namespace {

using ops::cuda::RowSampling;
using Samples = Kernels;

int32_t host_choice(const std::vector<float>& scores, const RowSampling& how) {
  const engine::SamplingParams sampling{.do_sample = how.sample,
                                        .temperature = how.temperature,
                                        .top_k = how.top_k,
                                        .top_p = how.top_p,
                                        .seed = how.seed,
                                        .min_p = how.min_p};
  return static_cast<int32_t>(
      engine::sample_token(scores, sampling, {}, engine::uniform(how.seed, how.sequence, how.position)));
}

/// Launches once over all rows and compares every row's token with the host's.
void run(const std::vector<std::vector<float>>& rows, const std::vector<RowSampling>& sampling) {
  const size_t vocabulary = rows.front().size(), stride = vocabulary + 3;
  std::vector<float> scores(rows.size() * stride, NAN);
  for (size_t r = 0; r < rows.size(); ++r)
    std::copy(rows[r].begin(), rows[r].end(), scores.begin() + static_cast<std::ptrdiff_t>(r * stride));
  const Buffer<float> on_scores(scores);
  const Buffer<RowSampling> on_sampling(sampling);
  in_each_order([&] {
    const Buffer<int32_t> ids(rows.size());
    ops::cuda::sample({.scores = on_scores.data(),
                       .score_stride = static_cast<int64_t>(stride),
                       .sampling = on_sampling.data(),
                       .ids = ids.data(),
                       .rows = static_cast<int64_t>(rows.size()),
                       .vocabulary = static_cast<int64_t>(vocabulary)},
                      nullptr);
    const std::vector<int32_t> got = ids.read();
    for (size_t r = 0; r < rows.size(); ++r) {
      EXPECT_EQ(got[r], host_choice(rows[r], sampling[r]))
          << "row " << r << ", temperature " << sampling[r].temperature << ", top_k " << sampling[r].top_k << ", top_p "
          << sampling[r].top_p << ", min_p " << sampling[r].min_p << ", sample " << sampling[r].sample;
    }
  });
}

/// Scores with many ties, as 16-bit logits have.
std::vector<float> coarse(size_t count, uint64_t seed) {
  std::vector<float> scores = numbers(count, seed, 3);
  for (float& score : scores) score = std::round(score * 4) / 4;
  return scores;
}

std::vector<RowSampling> all_ways(uint64_t position) {
  std::vector<RowSampling> ways;
  for (double temperature : {1.0, 0.7, 1.9}) {
    for (int64_t top_k : {0, 1, 5, 40}) {
      for (double top_p : {1.0, 0.9, 0.3}) {
        for (double min_p : {0.0, 0.1}) {
          ways.push_back({.temperature = temperature,
                          .top_p = top_p,
                          .min_p = min_p,
                          .top_k = top_k,
                          .seed = 9,
                          .sequence = ways.size() % 5,
                          .position = position + ways.size(),
                          .sample = true});
        }
      }
    }
  }
  ways.push_back({});
  return ways;
}

TEST_F(Samples, ChooseWhatTheHostChoosesForEveryWayOfSampling) {
  for (size_t vocabulary : {1, 2, 31, 513, 1500}) {
    const std::vector<RowSampling> ways = all_ways(vocabulary);
    std::vector<std::vector<float>> fine, equal;
    for (size_t r = 0; r < ways.size(); ++r) {
      fine.push_back(numbers(vocabulary, 100 + r, 3));
      equal.push_back(coarse(vocabulary, 100 + r));
    }
    run(fine, ways);
    run(equal, ways);
  }
}
TEST_F(Samples, ALargeVocabulary) {
  run({numbers(50257, 1, 4), coarse(50257, 2)},
      {{.top_p = 0.95, .seed = 3, .position = 4, .sample = true}, {.temperature = 0.8, .top_k = 50, .sample = true}});
}
TEST_F(Samples, OfEqualScoresTheSmallestIdIsTheBest) {
  std::vector<float> scores(700, 1.f);
  scores[0] = 0;
  run({scores}, {{}});
}
TEST_F(Samples, BannedTokensNeverComeAndWithAllBannedTheFirstDoes) {
  std::vector<float> some = numbers(600, 5), none(600, -INFINITY);
  for (size_t i = 0; i < some.size(); ++i)
    if (i % 3 != 0) some[i] = -INFINITY;
  run({some, some, none, none},
      {{.seed = 1, .sample = true}, {.top_p = 0.5, .top_k = 500, .sample = true}, {.sample = true}, {}});
}
TEST_F(Samples,
       ATailOfEqualsIsCutInOrderOfIds) {  // not where the tail ends on 1 - top_p itself: there the roundings decide
  std::vector<float> scores(200, 0.f);
  for (uint64_t position = 0; position < 4; ++position) {
    run({scores, scores, scores}, {{.top_p = 0.503, .position = position, .sample = true},
                                   {.top_p = 0.004, .position = position, .sample = true},
                                   {.top_p = 1e-9, .position = position, .sample = true}});
  }
}
TEST_F(Samples, ZeroAndMinusZeroAreEqual) {
  std::vector<float> scores(64, -1.f);
  scores[3] = -0.f, scores[5] = 0.f, scores[9] = -0.f;
  for (int64_t top_k : {1, 2, 3}) run({scores}, {{.top_k = top_k, .seed = 2, .sample = true}});
}
TEST_F(Samples, FrequenciesAreThoseOfTheScores) {
  const std::vector<float> scores{0, 1, -1, 0.5f, -INFINITY, 2};
  const size_t draws = 3000;
  std::vector<RowSampling> ways(draws, {.temperature = 1.3, .seed = 17, .sample = true});
  for (size_t i = 0; i < draws; ++i) ways[i].position = i;
  const Buffer<float> on_scores(scores);
  const Buffer<RowSampling> on_ways(ways);
  const Buffer<int32_t> ids(draws);
  ops::cuda::sample({.scores = on_scores.data(),
                     .score_stride = 0,
                     .sampling = on_ways.data(),
                     .ids = ids.data(),
                     .rows = static_cast<int64_t>(draws),
                     .vocabulary = 6},
                    nullptr);
  std::vector<double> counts(6), weights(6);
  double total = 0, chi_square = 0;
  for (int32_t id : ids.read()) ++counts.at(static_cast<size_t>(id));
  for (size_t i = 0; i < 6; ++i) total += weights[i] = std::exp(scores[i] / 1.3);
  for (size_t i = 0; i < 6; ++i) {
    const double expected = static_cast<double>(draws) * weights[i] / total;
    if (expected > 0) chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  EXPECT_EQ(counts[4], 0);
  EXPECT_LT(chi_square, 18.5);  // four degrees of freedom: one in a thousand would be beyond
}
TEST(SampleRefusals, AVocabularyWhoseWeightsDoNotAddUpExactlyIsNamed) {
  EXPECT_THROW(ops::cuda::sample({.rows = 1, .vocabulary = (int64_t{1} << 19) + 1}, nullptr), std::invalid_argument);
}

}  // namespace
}  // namespace pm::cuda_test
