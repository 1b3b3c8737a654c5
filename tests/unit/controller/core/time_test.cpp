// SPDX-License-Identifier: Apache-2.0
#include "controller/core/time.h"

#include <gtest/gtest.h>

using namespace pm::k8s;
using namespace std::chrono_literals;

TEST(Time, RoundTrips) {
  const WallTime time{1'700'000'000s + 123456us};
  EXPECT_EQ(format_time(time), "2023-11-14T22:13:20Z");
  EXPECT_EQ(format_micro_time(time), "2023-11-14T22:13:20.123456Z");
  EXPECT_EQ(parse_time(format_micro_time(time)), time);
  EXPECT_EQ(parse_time("2023-11-14T22:13:20Z"), WallTime{1'700'000'000s});
}

TEST(Time, ReadsOffsetsAndFractions) {
  EXPECT_EQ(parse_time("2023-11-15T00:13:20+02:00"), WallTime{1'700'000'000s});
  EXPECT_EQ(parse_time("2023-11-14T17:13:20.5-05:00"), WallTime{1'700'000'000s + 500ms});
}

TEST(Time, RefusesOtherText) {
  for (const char* text : {"", "2023", "2023-11-14 22:13:20Z", "2023-11-14T22:13:20", "2023-13-14T22:13:20Z",
                           "2023-11-14T22:13:20+2:00", "2023-11-14T22:13:20Zx"}) {
    EXPECT_FALSE(parse_time(text)) << text;
  }
}
