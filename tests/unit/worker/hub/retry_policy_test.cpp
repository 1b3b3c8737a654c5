// SPDX-License-Identifier: Apache-2.0
// Tests the retry policy of the hub client.
#include <gtest/gtest.h>

#include "worker/hub/client.h"

namespace pm::hub {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(RetryPolicy, DoublesItsPausesAndGivesUpAfterTheStallTimeout) {
  RetryPolicy retry(seconds(600));
  RetryPolicy::Clock::time_point now{};
  const FetchError error{Reason::SourceUnreachable, "gone", true};
  std::vector<milliseconds> pauses;
  while (const auto pause = retry.next(now, error)) {
    pauses.push_back(*pause);
    now += *pause;
    ASSERT_LT(pauses.size(), 100u);
  }
  EXPECT_EQ(now.time_since_epoch(), seconds(600)) << "the last try is made when the stall timeout ends";
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_GE(pauses[i], milliseconds(500) * (1 << i));
    EXPECT_LE(pauses[i], seconds(1) * (1 << i));
  }
  EXPECT_LE(*std::max_element(pauses.begin(), pauses.end()), seconds(60));
}

TEST(RetryPolicy, StartsOverWithEveryProgressAndHeedsTheServer) {
  RetryPolicy retry(seconds(10));
  RetryPolicy::Clock::time_point now{};
  for (int i = 0; i < 50; ++i, now += seconds(9)) {
    EXPECT_TRUE(retry.next(now, {Reason::SourceUnreachable, "", true}));
    retry.progress();
  }
  RetryPolicy long_one(seconds(3600));
  EXPECT_EQ(long_one.next(now, {Reason::SourceUnreachable, "", true, seconds(42)}), seconds(42));
  EXPECT_EQ(long_one.next(now, {Reason::SourceUnreachable, "", true, seconds(100000)}), seconds(300)) << "not for ever";
  EXPECT_FALSE(RetryPolicy(seconds(0)).next(now, {Reason::SourceUnreachable, "", true}));
}

}  // namespace
}  // namespace pm::hub
