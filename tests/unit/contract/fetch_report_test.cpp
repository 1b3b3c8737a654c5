// SPDX-License-Identifier: Apache-2.0
// Tests the report of a download: what the worker writes, and what the controller makes of anything.
#include "contract/fetch_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace pm {
namespace {

using nlohmann::json;

TEST(FetchReport, IsReadAsItIsWritten) {
  const FetchReport report{.state = "Waiting",
                           .model = "org/name",
                           .revision = "main",
                           .commit = "c0ffee",
                           .fetched_bytes = 1,
                           .total_bytes = 2,
                           .received_bytes = 3,
                           .bytes_per_second = 8,
                           .files = 4,
                           .files_done = 5,
                           .retries = 6,
                           .refetched = 7,
                           .waits_for = "other-fetch:1",
                           .reason = "SourceUnreachable",
                           .message = "the hub answers 503"};
  const json written = to_json(report);
  const auto read = fetch_report_from_json(written);
  ASSERT_TRUE(read);
  EXPECT_EQ(to_json(*read), written);
  EXPECT_EQ(read->state, waiting_state);
  EXPECT_EQ(read->refetched, 7);
  EXPECT_EQ(read->bytes_per_second, 8);
  EXPECT_EQ(read->message, report.message);
  EXPECT_FALSE(to_json(FetchReport{.state = "Fetching"}).contains("lastError"));
}

TEST(FetchReport, AnswersOfOtherKindsAreNoneOrClamped) {
  for (const char* text : {"[]", "1", "{}", R"({"state": 1})"}) EXPECT_FALSE(fetch_report_from_json(json::parse(text)));
  const auto odd = fetch_report_from_json({{"state", "Fetching"},
                                           {"fetchedBytes", -5},
                                           {"totalBytes", INT64_MAX},
                                           {"lastError", {{"message", json::array()}}}});
  ASSERT_TRUE(odd);
  EXPECT_EQ(odd->fetched_bytes, 0);
  EXPECT_EQ(odd->total_bytes, int64_t{1} << 50);
  EXPECT_EQ(odd->message, "");
}

}  // namespace
}  // namespace pm
