// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.h"

#include <gtest/gtest.h>

namespace pm::base {
namespace {

TEST(TruncateUtf8, SplitsNoCharacter) {
  EXPECT_EQ(truncate_utf8("abc", 3), "abc");
  EXPECT_EQ(truncate_utf8("abc", 2), "ab");
  EXPECT_EQ(truncate_utf8("abc", 0), "");
  const std::string_view text = "a\xC3\xA4\xF0\x9F\x98\x80z";
  const size_t ends[] = {0, 1, 1, 3, 3, 3, 3, 7, 8, 8};
  for (size_t bytes = 0; bytes < std::size(ends); ++bytes)
    EXPECT_EQ(truncate_utf8(text, bytes), text.substr(0, ends[bytes])) << bytes;
}

TEST(TruncateUtf8, EndsForTextThatIsNotUtf8) { EXPECT_EQ(truncate_utf8("\x80\x80\x80", 2), ""); }

}  // namespace
}  // namespace pm::base
