// SPDX-License-Identifier: Apache-2.0
// Tests the times of a start by stage: from pods, in status, in Events and for metrics.
#include "controller/operator/replicas/startup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/operator/status/model_status.h"

namespace pm::op::test {
namespace {

using k8s::Json;
using testing::ElementsAre;
using testing::FieldsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

k8s::WallTime at_second(int second) { return *k8s::parse_time("2026-01-01T00:00:00Z") + std::chrono::seconds(second); }

PodState pod(int created, int bound, int running, int ready) {
  PodState out;
  out.created_since = at_second(created), out.bound_since = at_second(bound);
  out.running_since = at_second(running), out.ready_since = at_second(ready);
  return out;
}

TEST(Startup, EachStageEndsWithTheLastPod) {
  const PodState first = pod(0, 1, 5, 20), second = pod(1, 3, 4, 22);
  const Startup startup = startup_of({&first, &second}, 11.26);
  EXPECT_EQ(to_json(startup),
            Json({{"scheduled", 3.0}, {"pulled", 2.0}, {"loaded", 11.3}, {"warmed", 5.7}, {"total", 22.0}}));
  EXPECT_EQ(to_text(startup), "22 s: scheduled 3 s, pulled 2 s, loaded 11.3 s, warmed up 5.7 s");
}

TEST(Startup, StagesFillTheWholeTimeWhateverTheClocksSay) {
  const PodState coarse = pod(0, 0, 1, 2);  // whole seconds of Kubernetes, and 1.6 s of the worker between two of them
  EXPECT_EQ(to_text(startup_of({&coarse}, 1.6)), "2 s: scheduled 0 s, pulled 1 s, loaded 1 s, warmed up 0 s");
  const PodState skewed = pod(10, 5, 3, 1);  // a node whose clock is behind
  EXPECT_EQ(startup_of({&skewed}, 1).total(), 0);
  PodState bare;
  bare.running_since = at_second(4), bare.ready_since = at_second(9);
  EXPECT_GE(startup_of({&bare}, 2).total(), 0);
}

TEST(Startup, JsonOfOthersIsReadOnlyWhenItIsWhole) {
  const Json whole{{"scheduled", 1}, {"pulled", 2.5}, {"loaded", 3}, {"warmed", 4}};
  ASSERT_TRUE(startup_from_json(whole));
  EXPECT_EQ(startup_from_json(whole)->total(), 10.5);
  for (const char* stage : {"scheduled", "pulled", "loaded", "warmed"}) {
    Json broken = whole;
    broken[stage] = "1";
    EXPECT_FALSE(startup_from_json(broken)) << stage;
  }
  EXPECT_FALSE(startup_from_json(Json()));
}

Json status(int64_t replica_generation, bool ready, std::optional<double> loaded = {}) {
  Json replica{
      {"index", 0}, {"replicaGeneration", replica_generation}, {"created", true}, {"ready", ready}, {"podHash", "a"}};
  if (loaded)
    replica["startupSeconds"] = {
        {"scheduled", 0}, {"pulled", 1}, {"loaded", *loaded}, {"warmed", 3}, {"total", *loaded + 4}};
  return {{"replicaStatuses", {replica}}};
}

TEST(StartupEvents, SayHowLongTheStartTook) {
  const auto events = status_events(status(1, false), status(1, true, 8));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].note, "replica 0 serves after 12 s: scheduled 0 s, pulled 1 s, loaded 8 s, warmed up 3 s");
  Json after = status(1, false);
  after["fetchSeconds"] = 200;
  const auto fetched = status_events(status(1, false), after);
  ASSERT_EQ(fetched.size(), 1u);
  EXPECT_EQ(fetched[0].reason + ": " + fetched[0].note,
            "Fetched: the checkpoint is on the volume, 3 min 20 s after its download was started");
  EXPECT_THAT(status_events(after, after), IsEmpty());
}

TEST(StageTimes, AreCountedOnceForEachGeneration) {
  const auto all = UnorderedElementsAre(FieldsAre("scheduled", 0), FieldsAre("pulled", 1), FieldsAre("loaded", 8),
                                        FieldsAre("warmed", 3), FieldsAre("total", 12));
  EXPECT_THAT(new_stage_times(status(1, true), status(1, true, 8)), all);
  EXPECT_THAT(new_stage_times(Json(), status(1, true, 8)), all);
  EXPECT_THAT(new_stage_times(status(1, true, 8), status(1, true, 8)), IsEmpty());
  EXPECT_THAT(new_stage_times(status(1, true, 5), status(2, true, 8)), all) << "the next generation started again";
  Json fetched = status(1, true, 8);
  fetched["fetchSeconds"] = 5;
  EXPECT_THAT(new_stage_times(status(1, true, 8), fetched), ElementsAre(FieldsAre("fetched", 5)));
}

}  // namespace
}  // namespace pm::op::test
