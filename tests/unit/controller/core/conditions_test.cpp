// SPDX-License-Identifier: Apache-2.0
#include "controller/core/conditions.h"

#include <gtest/gtest.h>

using namespace pm::k8s;
using std::chrono::seconds;
using std::chrono::system_clock;

namespace {
const system_clock::time_point t0{seconds(1'700'000'000)};
Condition ready(bool status, std::string reason = "Serving", long generation = 1) {
  return {"Ready", status, reason, "text", generation};
}
}  // namespace

TEST(Conditions, SetAddsToNullWithATransitionTime) {
  Json list;
  EXPECT_TRUE(set_condition(list, ready(true), t0));
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0]["status"], "True");
  EXPECT_EQ(list[0]["lastTransitionTime"], "2023-11-14T22:13:20Z");
  EXPECT_EQ(list[0]["observedGeneration"], 1);
}

TEST(Conditions, SettingTheSameAgainChangesNothing) {
  Json list;
  set_condition(list, ready(true), t0);
  const Json before = list;
  EXPECT_FALSE(set_condition(list, ready(true), t0 + seconds(100)));
  EXPECT_EQ(list, before);
}

TEST(Conditions, ANewReasonKeepsTheTransitionTime) {
  Json list;
  set_condition(list, ready(false, "Starting"), t0);
  EXPECT_TRUE(set_condition(list, ready(false, "RankLost", 2), t0 + seconds(100)));
  EXPECT_EQ(list[0]["reason"], "RankLost");
  EXPECT_EQ(list[0]["observedGeneration"], 2);
  EXPECT_EQ(list[0]["lastTransitionTime"], "2023-11-14T22:13:20Z");
}

TEST(Conditions, ANewStatusMovesTheTransitionTimeAndKeepsTheOrder) {
  Json list;
  set_condition(list, ready(false), t0);
  set_condition(list, {"Planned", true, "Fits", "", 1}, t0);
  EXPECT_TRUE(set_condition(list, ready(true), t0 + seconds(1)));
  EXPECT_EQ(list[0]["type"], "Ready");
  EXPECT_EQ(list[0]["lastTransitionTime"], "2023-11-14T22:13:21Z");
  EXPECT_TRUE(condition_is_true(list, "Ready"));
  EXPECT_FALSE(condition_is_true(list, "Stalled"));
  EXPECT_EQ(find_condition(list, "Stalled"), nullptr);
}
