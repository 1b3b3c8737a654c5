// SPDX-License-Identifier: Apache-2.0
// Tests the choice of the cause and the termination message.
#include "worker/launch/failure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace pm::launch {
namespace {

TEST(Failures, TheCauseIsTheFirstThatIsNotAnEcho) {
  EXPECT_EQ(
      cause_of(
          {{0, Reason::CommunicatorAborted, "", 5}, {2, Reason::RankLost, "", 5}, {1, Reason::ModelUnreadable, "", 3}})
          .rank,
      2);
  EXPECT_EQ(cause_of({{0, Reason::CommunicatorAborted, "", 5}, {1, Reason::CommunicatorAborted, "", 5}}).rank, 0);
}

TEST(TerminationMessage, IsJsonOfFourFields) {
  EXPECT_EQ(termination_message({1, Reason::RankLost, "rank 1 died of signal 9 (Killed)", 5}),
            R"json({"rank":1,"reason":"RankLost","exitCode":5,"message":"rank 1 died of signal 9 (Killed)"})json");
}

TEST(TerminationMessage, FitsIntoAKibibyteAndStaysValid) {
  for (const std::string unit : {"x", "é", "\"", "\x01", "\xff", "漢"}) {
    std::string long_text;
    for (int i = 0; i < 3000; ++i) long_text += unit;
    const std::string text = termination_message({0, Reason::ModelUnreadable, long_text, 3});
    EXPECT_LE(text.size(), 1024u);
    EXPECT_GT(text.size(), 900u);
    EXPECT_EQ(nlohmann::json::parse(text)["exitCode"], 3);
  }
}

TEST(TerminationMessage, IsWrittenOnlyToAFileThatExists) {
  const std::string path = std::filesystem::temp_directory_path() / ("termination-" + std::to_string(getpid()));
  EXPECT_FALSE(write_termination_message(path, {0, Reason::RankLost, "", 5}));
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_FALSE(write_termination_message("", {0, Reason::RankLost, "", 5}));
  std::ofstream(path) << std::string(2000, 'x');
  EXPECT_TRUE(write_termination_message(path, {0, Reason::RankLost, "gone", 5}));
  std::ifstream file(path);
  EXPECT_EQ(nlohmann::json::parse(file)["message"], "gone");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace pm::launch
