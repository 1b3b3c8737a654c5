// SPDX-License-Identifier: Apache-2.0
#include "controller/client/rate_limiter.h"

#include <gtest/gtest.h>

using namespace pm::k8s;
using namespace std::chrono_literals;

namespace {

Clock::Steady at(std::chrono::milliseconds time) { return Clock::Steady(1000s + time); }
std::chrono::milliseconds reserve(RateLimiter& limiter, std::chrono::milliseconds time) {
  return std::chrono::round<std::chrono::milliseconds>(limiter.reserve(at(time)));
}

}  // namespace

TEST(RateLimiter, LetsABurstThroughAndThenOneRequestAtATime) {
  RateLimiter limiter({.qps = 10, .burst = 3});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(reserve(limiter, 0ms), 0ms);
  EXPECT_EQ(reserve(limiter, 0ms), 100ms);
  EXPECT_EQ(reserve(limiter, 0ms), 200ms) << "each waits for its own token";
}

TEST(RateLimiter, APauseFillsTheBucketAndNoMore) {
  RateLimiter limiter({.qps = 10, .burst = 3});
  for (int i = 0; i < 5; ++i) reserve(limiter, 0ms);
  EXPECT_EQ(reserve(limiter, 300ms), 0ms);
  EXPECT_EQ(reserve(limiter, 300ms), 100ms);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(reserve(limiter, 1h), 0ms);
  EXPECT_EQ(reserve(limiter, 1h), 100ms);
}

TEST(RateLimiter, HoldsItsRateForAnyPatternOfArrivals) {
  RateLimiter limiter({.qps = 50, .burst = 10});
  std::chrono::milliseconds now{0}, last{0};
  for (int i = 0; i < 1000; ++i) {
    now += std::chrono::milliseconds(i % 7);
    last = std::max(last, now + reserve(limiter, now));
  }
  EXPECT_GE(last, (1000 - 10) * 20ms - 1ms);
  EXPECT_LE(last, (1000 - 10) * 20ms + 20ms);
}

TEST(RateLimiter, ATimeThatCameLateGivesNothingTwice) {
  RateLimiter limiter({.qps = 10, .burst = 1});
  EXPECT_EQ(reserve(limiter, 100ms), 0ms);
  EXPECT_EQ(reserve(limiter, 0ms), 100ms);
  EXPECT_EQ(reserve(limiter, 100ms), 200ms);
}

TEST(RateLimiter, WithoutARateNobodyWaits) {
  RateLimiter limiter({.qps = 0, .burst = 1});
  for (int i = 0; i < 100; ++i) EXPECT_EQ(reserve(limiter, 0ms), 0ms);
}
