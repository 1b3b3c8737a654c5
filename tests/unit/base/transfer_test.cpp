// SPDX-License-Identifier: Apache-2.0
#include "base/transfer.h"

#include <gtest/gtest.h>

namespace pm::base {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(FormatDuration, HasTwoUnitsAndRoundsUp) {
  EXPECT_EQ(format_duration(0), "0 s");
  EXPECT_EQ(format_duration(0.2), "1 s");
  EXPECT_EQ(format_duration(119), "119 s");
  EXPECT_EQ(format_duration(120), "2 min");
  EXPECT_EQ(format_duration(200), "3 min 20 s");
  EXPECT_EQ(format_duration(7500), "2 h 5 min");
  EXPECT_EQ(format_duration(4 * 86'400 + 7300), "4 d 2 h");
  EXPECT_EQ(format_duration(1e300), "11574 d 1 h");
  EXPECT_EQ(format_duration(-1), "0 s");
}

TEST(Transfer, TellsBytesRateAndTimeLeft) {
  EXPECT_EQ(to_text({5 << 20, 20 << 20, 3 << 20}), "5.0 MiB of 20.0 MiB, 3.0 MiB/s, 5 s left");
  EXPECT_EQ(to_text({5 << 20, 20 << 20, 0}), "5.0 MiB of 20.0 MiB") << "the rate is unknown";
  EXPECT_EQ(to_text({20 << 20, 20 << 20, 3 << 20}), "20.0 MiB of 20.0 MiB, 3.0 MiB/s");
  EXPECT_EQ(to_text({0, int64_t{1} << 50, 1}), "0 B of 1.0 PiB, 1 B/s, 11574 d 1 h left");
}

TEST(RateMeter, IsOfTheLastTenSeconds) {
  RateMeter meter;
  const RateMeter::Time start{};
  EXPECT_EQ(meter.per_second(start), 0);
  for (int i = 0; i <= 200; ++i) meter.observe(i * 100, start + milliseconds(100 * i));  // 1000 bytes per second
  EXPECT_NEAR(meter.per_second(start + seconds(20)), 1000, 1);
  for (int i = 1; i <= 200; ++i) meter.observe(20'000 + i, start + seconds(20) + milliseconds(100 * i));
  EXPECT_NEAR(meter.per_second(start + seconds(40)), 10, 1) << "the fast start is forgotten";
  EXPECT_NEAR(meter.per_second(start + seconds(60)), 0, 0.5) << "a stalled transfer has no rate";
}

TEST(RateMeter, SaysNothingWithinTheFirstSecond) {
  RateMeter meter;
  meter.observe(0, RateMeter::Time{});
  meter.observe(1 << 30, RateMeter::Time{} + milliseconds(900));
  EXPECT_EQ(meter.per_second(RateMeter::Time{} + milliseconds(900)), 0);
  EXPECT_GT(meter.per_second(RateMeter::Time{} + seconds(1)), 0);
}

}  // namespace
}  // namespace pm::base
