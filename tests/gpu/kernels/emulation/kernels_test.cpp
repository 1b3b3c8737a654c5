// SPDX-License-Identifier: Apache-2.0
// Tests of kernels that need the emulation: device functions called from the host, the occupancy that a driver would
// say, and how many scores share a counter in shared memory.
#include "tests/gpu/kernels/emulation/emulation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/gpu/kernels/device.h"
#include "worker/ops/cuda/attention.h"
#include "worker/ops/cuda/sample.h"
#include "worker/ops/cuda/weight.cuh"

namespace pm::cuda_test {
namespace {

TEST(SampleArithmetic, AQuotientIsThatOfFp64RoundedToFp32) {
  for (const double temperature : {0.7, 0.01, 1.9, 1000.0, 3.0, 0.1 + 0.2, 0.3, 0.6, 0.9, 1.2, 1.5, 2.0, 1 + 0x1p-50}) {
    const ops::cuda::Divisor divisor(temperature);
    for (const float x : numbers(100000, 12, 30)) {
      const float expected = static_cast<float>(static_cast<double>(x) / temperature);
      ASSERT_EQ(divisor.quotient(x), expected) << x << " / " << temperature;
    }
    EXPECT_EQ(divisor.quotient(-INFINITY), -INFINITY);
    EXPECT_EQ(divisor.quotient(0.f), 0.f);
  }
  EXPECT_EQ(ops::cuda::Divisor(0.001).quotient(-3e38f), -INFINITY);
  EXPECT_EQ(ops::cuda::Divisor(1).quotient(1.1f), 1.1f);
}
TEST(SampleArithmetic, AWeightIsTheExponentialOfTheDifference) {
  unsigned powers[ops::cuda::power_steps];
  emulation::launch(dim3(1), dim3(32), 0, [&] { ops::cuda::make_powers(powers); });
  const std::vector<float> bests = numbers(30000, 13, 10), steps = numbers(30000, 14, 1);
  for (size_t i = 0; i < bests.size(); ++i) {
    const float best = bests[i], scales[] = {1e-3f, 0.3f, 5.f},
                score = std::min(best, best - std::abs(steps[i]) * scales[i % 3]);
    const double expected = std::exp(static_cast<double>(score) - static_cast<double>(best));
    const double weight = static_cast<double>(ops::cuda::weight_below(best, score, powers)) * 0x1p-44;
    ASSERT_LE(std::abs(weight - expected), expected * 0x1p-30 + 0x1p-44) << score << " below " << best;
  }
  EXPECT_EQ(ops::cuda::weight_below(2.f, 2.f, powers), ops::cuda::Sum{1} << 44);
  EXPECT_EQ(ops::cuda::weight_below(2.f, -INFINITY, powers), 0U);
  EXPECT_EQ(ops::cuda::weight_below(2.f, NAN, powers), 0U);
  EXPECT_EQ(ops::cuda::weight_below(2.f, -40.f, powers), 0U);
}

#if !defined(PM_WITH_TSAN)  // for which the table of counts would be a race
/// Returns the largest share of a row's scores that add to one counter.
double share_of_busiest_counter(const std::vector<float>& scores, const ops::RowSampling& how) {
  int32_t id = -1;
  emulation::count_atomics();
  ops::cuda::sample({.scores = scores.data(),
                     .sampling = &how,
                     .ids = &id,
                     .rows = 1,
                     .vocabulary = static_cast<int64_t>(scores.size())},
                    nullptr);
  return static_cast<double>(emulation::most_atomics()) / static_cast<double>(scores.size());
}

TEST(SampleContention, FewScoresShareACounter) {
  std::vector<float> scores = numbers(20000, 6, 3), far = numbers(20000, 6, 1);
  for (float& score : far) score = -12 + score / 2;  // all in one or two powers of two, as with some models
  far[77] = 3;
  for (const std::vector<float>& row : {scores, far}) {
    EXPECT_LT(share_of_busiest_counter(row, {.top_k = 50, .sample = true}), 0.02);
    EXPECT_LT(share_of_busiest_counter(row, {.top_p = 0.9, .sample = true}), 0.02);
  }
  const std::vector<float> equal(20000, 1.f);
  EXPECT_LT(share_of_busiest_counter(equal, {.top_p = 0.9, .sample = true}), 0.6);
}
#endif

TEST(DecodeOccupancy, SplitsFollowFromTheBlocksThatTheDriverLetsRunAtOnce) {
  ops::cuda::DecodeAttention p;
  p.cache = ops::cuda::Element::BF16, p.block_stride = 8 * 16 * 128;
  p.sequences = 1, p.heads = 32, p.kv_heads = 8, p.d = 128;
  const auto splits = [&](int resident) {
    const int before = emulation::resident_blocks;
    emulation::resident_blocks = resident;
    const int64_t result = ops::cuda::decode_splits(p, 131072, 132);
    emulation::resident_blocks = before;
    return result;
  };
  EXPECT_EQ(splits(2), 30);
  EXPECT_EQ(splits(3), 45);
  p.heads = 8 * 9;  // more query heads of a KV head than a block takes: two blocks for each
  EXPECT_EQ(splits(3), ops::cuda::decode_splits(16, 3 * 132, 131072));
}
TEST(DecodeOccupancy, ABlockTakesEightQueryHeadsOfAKvHeadWhereTheCacheHas16Bits) {
  ops::cuda::DecodeAttention p;
  p.sequences = 1, p.kv_heads = 1, p.heads = 8, p.block_stride = 16 * 512;
  const auto blocks_are = [&](int64_t blocks) {
    return ops::cuda::decode_splits(p, 131072, 100) == ops::cuda::decode_splits(blocks, 200, 131072);
  };
  for (const ops::cuda::Element cache : {ops::cuda::Element::F16, ops::cuda::Element::BF16}) {
    for (const int64_t d : {64, 80, 128, 192, 256}) {
      p.cache = cache, p.d = d;
      EXPECT_TRUE(blocks_are(1)) << d;
    }
  }
  p.cache = ops::cuda::Element::F32, p.d = 128;
  EXPECT_TRUE(blocks_are(1));
  p.d = 512;  // 16 columns in each lane leave registers for two heads
  EXPECT_TRUE(blocks_are(4));
}

}  // namespace
}  // namespace pm::cuda_test
