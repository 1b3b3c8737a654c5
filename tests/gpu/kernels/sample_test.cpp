// SPDX-License-Identifier: Apache-2.0
// Token sampling on the device, compared with the host's sampler and with the frequencies that the logits imply.
#include "worker/ops/cuda/sample.h"
#include "tests/gpu/kernels/device.h"
#include "worker/engine/sampling/philox.h"
#include "worker/engine/sampling/sampler.h"

namespace pm::cuda_test {
namespace {

using ops::RowSampling;
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
TEST_F(Samples, ALargeVocabularyOfALanguageModel) {  // most scores far below a few; 16-bit logits have many ties
  std::vector<float> scores = coarse(128256, 5);
  for (size_t i = 0; i < 40; ++i) scores[i * 3001] = 10 + static_cast<float>(i) / 4;
  run({scores, scores, scores, scores}, {{.temperature = 0.6, .top_p = 0.9, .seed = 5, .sample = true},
                                         {.temperature = 0.7, .top_p = 0.8, .top_k = 20, .seed = 6, .sample = true},
                                         {.temperature = 3, .top_p = 0.99, .min_p = 0.0001, .seed = 7, .sample = true},
                                         {}});
}
TEST_F(Samples, ALargeVocabularyOfEqualScores) {
  const std::vector<float> scores(20000, -3.f);
  run({scores, scores, scores}, {{.top_p = 0.70001, .position = 1, .sample = true},
                                 {.top_k = 7, .position = 2, .sample = true},
                                 {.temperature = 0.3, .position = 3, .sample = true}});
}
TEST_F(Samples, ScoresFarBelowTheBestCountForTopK) {
  std::vector<float> scores(300);
  for (size_t i = 0; i < scores.size(); ++i) scores[i] = static_cast<float>(i * 37 % 300) * -25.f;
  scores[40] = -INFINITY, scores[41] = -3e38f;
  for (const int64_t top_k : {1, 2, 3, 150, 298, 299, 300, 1000}) {
    for (const double temperature : {1.0, 40.0, 1000.0})
      run({scores}, {{.temperature = temperature, .top_k = top_k, .seed = 4, .sample = true}});
  }
}
TEST_F(Samples, ScoresThatDifferInTheirLastBitAreToldApart) {
  for (const float middle : {0.f, 1e-30f, 1.f, -1.f, 4096.f}) {
    std::vector<float> scores(200, middle);
    for (size_t i = 1; i < 100; ++i) {
      scores[2 * i] = std::nextafter(scores[2 * i - 2], -INFINITY);
      scores[2 * i + 1] = std::nextafter(scores[2 * i - 1], INFINITY);
    }
    for (const int64_t top_k : {1, 30, 99, 100, 101, 199}) {
      for (uint64_t position = 0; position < 3; ++position)
        run({scores}, {{.top_k = top_k, .position = position, .sample = true}});
    }
    run({scores, scores}, {{.top_p = 0.5013, .position = 3, .sample = true},
                           {.top_p = 0.1237, .top_k = 77, .position = 4, .sample = true}});
  }
}
TEST_F(Samples, ChooseWhatTheHostChoosesAtEveryRandomNumber) {
  const std::vector<float> scores = numbers(700, 8, 0.2);
  std::vector<RowSampling> ways;
  for (uint64_t position = 0; position < 150; ++position)
    ways.push_back({.temperature = 0.9, .top_p = 0.97, .seed = 21, .position = position, .sample = true});
  run(std::vector<std::vector<float>>(ways.size(), scores), ways);
}
TEST_F(Samples, MinPKeepsTheScoresOfItsShareItself) {
  // shares to either side of those of scores, and by less than the next score's share differs
  const std::vector<float> scores{1.f, 0.5f, 0.25f, 0.f, std::nextafter(0.5f, 0.f), std::nextafter(0.5f, 1.f)};
  for (const double min_p :
       {std::exp(-0.5) * (1 - 1e-10), std::exp(-0.5) * (1 + 1e-10), std::exp(-1.0) * (1 - 1e-10), 1.0, 1e-300}) {
    for (uint64_t position = 0; position < 20; ++position)
      run({scores}, {{.min_p = min_p, .position = position, .sample = true}});
  }
}
TEST_F(Samples, ScoresThatAreNoNumbersGiveSomeToken) {
  std::vector<float> scores(size_t{4} * 600, NAN);  // row 0 has nothing else
  scores[600 + 17] = 1, scores[600 + 400] = 2;
  std::fill(scores.begin() + 1200, scores.end(), 0.f);
  scores[1800 + 5] = INFINITY;
  const Buffer<float> on_scores(scores);
  for (const RowSampling& how :
       {RowSampling{}, RowSampling{.sample = true},
        RowSampling{.temperature = 0.5, .top_p = 0.5, .min_p = 0.1, .top_k = 3, .sample = true},
        RowSampling{.temperature = 1e-300, .top_p = 0.5, .sample = true}}) {
    const Buffer<RowSampling> sampling(std::vector<RowSampling>(4, how));
    const Buffer<int32_t> ids(4);
    ops::cuda::sample({.scores = on_scores.data(),
                       .score_stride = 600,
                       .sampling = sampling.data(),
                       .ids = ids.data(),
                       .rows = 4,
                       .vocabulary = 600},
                      nullptr);
    for (const int32_t id : ids.read()) EXPECT_TRUE(id >= 0 && id < 600) << id;
  }
}
TEST_F(Samples, OfEqualScoresTheSmallestIdIsTheBest) {
  std::vector<float> scores(700, 1.f);
  scores[0] = 0;
  run({scores}, {{}});
}
TEST_F(Samples, TheBestScoreIsFoundWithItsSmallestId) {
  constexpr size_t stride = 1000;
  for (const size_t vocabulary : {size_t{1}, size_t{31}, size_t{513}, size_t{997}}) {
    std::vector<float> scores(4 * stride, 1e9f);  // what lies behind a row is not read
    for (size_t r = 0; r < 4; ++r) {
      const std::vector<float> row = r == 3 ? std::vector<float>(vocabulary, NAN) : coarse(vocabulary, 7 + r);
      std::copy(row.begin(), row.end(), scores.begin() + static_cast<std::ptrdiff_t>(r * stride));
    }
    scores[stride] = NAN;
    if (vocabulary > 1) scores[2 * stride + vocabulary - 1] = scores[2 * stride + 1] = 50;
    const Buffer<float> on_scores(scores);
    in_each_order([&] {
      const Buffer<float> values(4);
      const Buffer<int64_t> ids(4);
      ops::cuda::best_scores({.scores = on_scores.data(),
                              .score_stride = stride,
                              .values = values.data(),
                              .ids = ids.data(),
                              .rows = 4,
                              .vocabulary = static_cast<int64_t>(vocabulary)},
                             nullptr);
      for (size_t r = 0; r < 4; ++r) {
        int64_t id = 0;
        float best = -INFINITY;
        for (size_t i = 0; i < vocabulary; ++i)
          if (const float score = scores[r * stride + i]; score > best) best = score, id = static_cast<int64_t>(i);
        EXPECT_EQ(values.read()[r], best) << "row " << r << " of " << vocabulary;
        EXPECT_EQ(ids.read()[r], id) << "row " << r << " of " << vocabulary;
      }
    });
  }
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
TEST_F(Samples, EditsChangeTheScoresOfTheirRowsOnly) {
  constexpr int64_t vocabulary = 700, stride = 703, rows = 5;
  std::vector<float> scores = numbers(rows * stride, 21, 3);
  scores[2 * stride + 4] = -INFINITY;
  std::vector<ops::RowEdit> edits;
  for (int32_t row : {0, 2, 4}) {
    for (int32_t id = 0; id < vocabulary; id += row + 1)
      edits.push_back({row, {.id = id, .factor = 1.3f, .subtrahend = id % 7 == 0 ? INFINITY : 0.25f * (id % 3)}});
  }
  const Buffer<ops::RowEdit> on_edits(edits);
  for (const size_t count : {edits.size(), edits.size() / 2, size_t{1}, size_t{0}}) {
    std::vector<float> expected = scores;
    for (size_t i = 0; i < count; ++i) {
      float& score = expected[static_cast<size_t>(edits[i].row * stride + edits[i].edit.id)];
      score = (score < 0 ? score * 1.3f : score / 1.3f) - edits[i].edit.subtrahend;
    }
    const Buffer<int32_t> on_count(std::vector<int32_t>{static_cast<int32_t>(count)});
    in_each_order([&] {
      const Buffer<float> on_scores(scores);
      ops::cuda::edit_scores({.scores = on_scores.data(),
                              .score_stride = stride,
                              .edits = on_edits.data(),
                              .count = on_count.data(),
                              .capacity = static_cast<int64_t>(edits.size())},
                             nullptr);
      EXPECT_EQ(on_scores.read(), expected) << count << " of " << edits.size() << " edits";
    });
  }
}
TEST(SampleRefusals, AVocabularyWhoseWeightsDoNotAddUpExactlyIsNamed) {
  EXPECT_THROW(ops::cuda::sample({.rows = 1, .vocabulary = (int64_t{1} << 19) + 1}, nullptr), std::invalid_argument);
}

}  // namespace
}  // namespace pm::cuda_test
