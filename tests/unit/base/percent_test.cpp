// SPDX-License-Identifier: Apache-2.0
#include "base/percent.h"

#include <gtest/gtest.h>

namespace pm::base {
namespace {

TEST(Percent, EncodesAllButUnreservedCharacters) {
  EXPECT_EQ(percent_encode("azAZ09-._~"), "azAZ09-._~");
  EXPECT_EQ(percent_encode("refs/pr/1"), "refs%2Fpr%2F1");
  EXPECT_EQ(percent_encode("a b/\xc3\xa9#?%", "/"), "a%20b/%C3%A9%23%3F%25");
  EXPECT_EQ(percent_encode({"\0+", 2}), "%00%2B");
}

}  // namespace
}  // namespace pm::base
