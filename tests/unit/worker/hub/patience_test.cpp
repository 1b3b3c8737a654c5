// When a hub that fails is asked again.
#include <gtest/gtest.h>

#include "worker/hub/client.h"

namespace pm::hub {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Patience, DoublesItsPausesAndGivesUpInTheEnd) {
  Patience patience(seconds(600));
  Patience::Clock::time_point now{};
  const Trouble trouble{"SourceUnreachable", "gone", true};
  std::vector<milliseconds> pauses;
  while (const auto pause = patience.next(now, trouble)) {
    pauses.push_back(*pause);
    now += *pause;
    ASSERT_LT(pauses.size(), 100u);
  }
  EXPECT_EQ(now.time_since_epoch(), seconds(600)) << "the last try is made when the patience ends";
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_GE(pauses[i], milliseconds(500) * (1 << i));
    EXPECT_LE(pauses[i], seconds(1) * (1 << i));
  }
  EXPECT_LE(*std::max_element(pauses.begin(), pauses.end()), seconds(60));
}

TEST(Patience, StartsAnewWithEveryProgressAndHeedsTheServer) {
  Patience patience(seconds(10));
  Patience::Clock::time_point now{};
  for (int i = 0; i < 50; ++i, now += seconds(9)) {
    EXPECT_TRUE(patience.next(now, {"SourceUnreachable", "", true}));
    patience.progress();
  }
  Patience long_one(seconds(3600));
  EXPECT_EQ(long_one.next(now, {"SourceUnreachable", "", true, seconds(42)}), seconds(42));
  EXPECT_EQ(long_one.next(now, {"SourceUnreachable", "", true, seconds(100000)}), seconds(300)) << "not for ever";
  EXPECT_FALSE(Patience(seconds(0)).next(now, {"SourceUnreachable", "", true}));
}

}  // namespace
}  // namespace pm::hub
