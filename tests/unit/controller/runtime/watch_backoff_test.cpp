// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/watch_backoff.h"

#include <gtest/gtest.h>

using namespace pm::k8s;
using namespace std::chrono_literals;

TEST(ExponentialDelay, DoublesUpToItsCap) {
  EXPECT_EQ(exponential_delay(5ms, 0, 60s), 5ms);
  EXPECT_EQ(exponential_delay(5ms, 3, 60s), 40ms);
  EXPECT_EQ(exponential_delay(5ms, 13, 60s), 40960ms);
  EXPECT_EQ(exponential_delay(5ms, 14, 60s), 60s);
  EXPECT_EQ(exponential_delay(5ms, 1'000'000, 60s), 60s);
}

TEST(WatchBackoff, IsStretchedByChance) {
  Clock::Steady now{};
  WatchBackoff none([] { return 0.0; }), most([] { return 0.5; });
  for (const auto expected : {800ms, 1600ms, 3200ms, 6400ms, 12800ms, 25600ms, 30000ms, 30000ms}) {
    EXPECT_EQ(none.next(now), expected);
    EXPECT_EQ(most.next(now), expected + expected / 2);
  }
}

TEST(WatchBackoff, IsResetAfterTwoHealthyMinutes) {
  Clock::Steady now{};
  WatchBackoff backoff([] { return 0.0; });
  backoff.next(now);
  backoff.next(now += 2min);
  EXPECT_EQ(backoff.next(now += 121s), 3200ms) << "the wait of 1.6 s does not count as health";
  EXPECT_EQ(backoff.next(now += 124s), 800ms);
}
