// SPDX-License-Identifier: Apache-2.0
// Tests the report at /status: what the launcher writes, and what the controller makes of anything.
#include "contract/status_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace pm {
namespace {

using nlohmann::json;

TEST(StatusReport, IsReadAsItIsWritten) {
  const StatusReport report{
      .state = "Failed",
      .ready = true,
      .replica_generation = 7,
      .ranks = {{.rank = 0,
                 .state = "Ready",
                 .load_bytes = 10,
                 .load_total = 20,
                 .load_seconds = 1.5,
                 .steps = 3,
                 .heartbeat_age = 0.25,
                 .measured = Memory{1, 2, 3, 4, 5},
                 .predicted = Memory{6, 7, 8, 9, 10},
                 .device = DeviceMemory{5, 4, 3, 2, 1},
                 .graphs = GraphUse{8, 100, 4096}},
                {.rank = 1, .state = "Failed", .reason = "RankLost", .message = "gone"},
                {.rank = 2, .state = "Ready", .graphs = GraphUse{.capture_failure = "no memory"}}}};
  const json written = to_json(report);
  EXPECT_EQ(written["ranks"][0]["measured"]["total"], 15);
  EXPECT_TRUE(written["ranks"][1]["heartbeatAgeSeconds"].is_null());
  EXPECT_FALSE(written["ranks"][0].contains("reason"));
  EXPECT_FALSE(written["ranks"][0]["graphs"].contains("captureFailure"));
  EXPECT_EQ(written["ranks"][2]["graphs"]["captureFailure"], "no memory");
  const auto read = status_report_from_json(written);
  ASSERT_TRUE(read);
  EXPECT_EQ(to_json(*read), written);
  EXPECT_EQ(read->ranks[0].state, ready_state);
}

TEST(StatusReport, WithoutAGenerationOrAListOfRanksIsNone) {
  for (const char* text : {"null", "[]", "{}", "7", R"({"replicaGeneration":1})", R"({"ranks":[]})",
                           R"({"replicaGeneration":"1","ranks":[]})", R"({"replicaGeneration":1,"ranks":7})",
                           R"({"replicaGeneration":18446744073709551615,"ranks":[]})"})
    EXPECT_FALSE(status_report_from_json(json::parse(text))) << text;
  EXPECT_FALSE(status_report_from_json({{"replicaGeneration", 1}, {"ranks", std::vector<int>(1025)}}));
}

TEST(StatusReport, HostileNumbersAreBoundedAndOtherTypesCountAsAbsent) {
  const auto report = status_report_from_json(json::parse(R"({"replicaGeneration":1,"state":7,"ready":"yes","ranks":[
      {"rank":0,"loadBytes":-5,"loadTotal":18446744073709551615,"loadSeconds":1e308,"measured":[],"steps":-1},
      {"rank":1,"loadTotal":9223372036854775807,"loadSeconds":"x","state":[],"device":7,"graphs":null},
      {"rank":-1},{"rank":1024},{"rank":"x"},{},7,null]})"));
  ASSERT_TRUE(report);
  EXPECT_EQ(report->state, "");
  EXPECT_FALSE(report->ready);
  ASSERT_EQ(report->ranks.size(), 2u);
  EXPECT_EQ(report->ranks[0].load_bytes, 0);
  EXPECT_EQ(report->ranks[0].load_total, 0);
  EXPECT_EQ(report->ranks[0].load_seconds, 1e6);
  EXPECT_EQ(report->ranks[0].steps, 0);
  EXPECT_FALSE(report->ranks[0].measured);
  EXPECT_EQ(report->ranks[1].load_total, int64_t{1} << 50);
  EXPECT_FALSE(report->ranks[1].load_seconds || report->ranks[1].device || report->ranks[1].graphs);
}

}  // namespace
}  // namespace pm
