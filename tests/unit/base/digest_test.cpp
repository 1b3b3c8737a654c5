// SPDX-License-Identifier: Apache-2.0
#include "base/digest.h"

#include <gtest/gtest.h>

namespace pm::base {
namespace {

constexpr const char* of_abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";  // FIPS 180-2

TEST(Digest, OfPiecesIsTheDigestOfTheWhole) {
  EXPECT_EQ(to_hex(sha256("abc")), of_abc);
  Digest pieces(DigestAlgorithm::Sha256);
  pieces.update("a");
  pieces.update("");
  pieces.update("bc");
  EXPECT_EQ(to_hex(pieces.finish()), of_abc);
}

TEST(Digest, OfNothing) {
  EXPECT_EQ(to_hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(to_hex(Digest(DigestAlgorithm::Sha1).finish()), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
}

TEST(Hex, HasTwoLowerCaseDigitsForEachByte) { EXPECT_EQ(to_hex(std::string_view("\0\x7f\xff\x80", 4)), "007fff80"); }

}  // namespace
}  // namespace pm::base
