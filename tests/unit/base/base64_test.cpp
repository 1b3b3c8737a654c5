// SPDX-License-Identifier: Apache-2.0
#include "base/base64.h"

#include <gtest/gtest.h>

namespace pm::base {
namespace {

TEST(Base64, RoundTrip) {
  for (const std::string bytes : {"", "a", "ab", "abc", "\xff\xfe\x01"})
    EXPECT_EQ(decode_base64(encode_base64(bytes)), bytes);
  EXPECT_EQ(encode_base64("a"), "YQ==");
  EXPECT_EQ(encode_base64("ab"), "YWI=");
  EXPECT_EQ(encode_base64("\xff\xef"), "/+8=");
}

TEST(Base64, DecodesAndRefuses) {
  EXPECT_EQ(decode_base64(""), "");
  EXPECT_EQ(decode_base64("YQ=="), "a");
  EXPECT_EQ(decode_base64("YWI=\n"), "ab");
  EXPECT_EQ(decode_base64("YWJj"), "abc");
  EXPECT_EQ(decode_base64("YW Jj\r\nZA"), "abcd");
  EXPECT_EQ(decode_base64("/+8="), "\xff\xef");
  EXPECT_EQ(decode_base64("_-8 \n="), "\xff\xef") << "the URL-safe alphabet, and white space before the padding";
  for (const char* text : {"Y", "*", "ab*d", "YQ=", "YQ===", "=", "==", "YWJj=", "YQ==YQ=="})
    EXPECT_FALSE(decode_base64(text)) << text;
}

}  // namespace
}  // namespace pm::base
