// SPDX-License-Identifier: Apache-2.0
// Tests the termination message: what the worker writes, and what the controller makes of anything.
#include "contract/termination.h"

#include <gtest/gtest.h>

namespace pm {
namespace {

TEST(Termination, IsReadAsItIsWritten) {
  const std::string text =
      to_text({.reason = "RankLost", .message = "rank 1 died of signal 9 (Killed)", .rank = 1, .exit_code = 5}, 1024);
  EXPECT_EQ(text,
            R"json({"rank":1,"reason":"RankLost","exitCode":5,"message":"rank 1 died of signal 9 (Killed)"})json");
  const auto read = parse_termination(text);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->reason, "RankLost");
  EXPECT_EQ(read->message, "rank 1 died of signal 9 (Killed)");
  EXPECT_EQ(read->rank, 1);
  EXPECT_EQ(read->exit_code, 5);
}

TEST(Termination, OfASubcommandWithoutRanksHasReasonAndMessageOnly) {
  EXPECT_EQ(to_text({.reason = "AuthFailed", .message = "401"}, max_refusal_bytes),
            R"({"reason":"AuthFailed","message":"401"})");
}

TEST(Termination, ALongMessageIsCutBetweenCharacters) {
  std::string message;
  for (int i = 0; i < 2000; ++i) message += "\"\xC3\xA4";
  const std::string text = to_text({.reason = "ModelUnreadable", .message = message, .rank = 0, .exit_code = 3}, 1024);
  EXPECT_LE(text.size(), 1024u);
  EXPECT_GT(text.size(), 1000u);
  const auto read = parse_termination(text);
  ASSERT_TRUE(read);
  EXPECT_TRUE(message.starts_with(read->message));
}

TEST(Termination, GarbageIsNoMessageAndAWrongFieldCountsAsAbsent) {
  for (const char* text : {"", "{", "7", "[]", "null", "ModelUnreadable: no such file", "\xFF"})
    EXPECT_FALSE(parse_termination(text)) << text;
  for (const char* text : {R"({"reason":[],"rank":-5,"message":7})", R"({"rank":"x","exitCode":256})",
                           R"({"rank":1e300})", R"({"rank":18446744073709551615})", R"({"rank":65536})", "{}"}) {
    const auto read = parse_termination(text);
    ASSERT_TRUE(read) << text;
    EXPECT_EQ(read->reason + read->message, "") << text;
    EXPECT_FALSE(read->rank || read->exit_code) << text;
  }
}

}  // namespace
}  // namespace pm
