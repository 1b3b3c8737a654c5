// SPDX-License-Identifier: Apache-2.0
#include "base/byte_size.h"

#include <gtest/gtest.h>

namespace pm::base {
namespace {

TEST(FormatBytes, HasOneDecimalFromAKibibyteOn) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.0 KiB");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(int64_t{80} << 30), "80.0 GiB");
  EXPECT_EQ(format_bytes(int64_t{3} << 50), "3.0 PiB");
}

TEST(FormatBytes, RoundsUpIntoTheNextUnit) {
  EXPECT_EQ(format_bytes((1 << 20) - 1), "1.0 MiB") << "not 1024.0 KiB";
  EXPECT_EQ(format_bytes(1023 << 10), "1023.0 KiB");
}

}  // namespace
}  // namespace pm::base
