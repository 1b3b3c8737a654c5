// Updates that are taken back before their groups serve.
#include "update.h"

namespace pm::op::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST_F(Update, AnUpdateThatIsTakenBackLeavesWhatServes) {
  cluster.drain_seconds = 5;
  start();
  edit_badly();
  ASSERT_EQ(group()["former"], 1);
  EXPECT_EQ(group()["incarnation"], 2);
  take_back();
  ASSERT_TRUE(brain.pass());
  EXPECT_EQ(group()["incarnation"], 1);
  EXPECT_FALSE(group().contains("former"));
  EXPECT_EQ(group()["nodes"], Json({"node-a"}));
  EXPECT_TRUE(group().contains("loadSeconds"));
  EXPECT_TRUE(cluster.is_true("Ready"));
  EXPECT_EQ(serving()["0"], 1);
  EXPECT_THAT(incarnations()["0"], ElementsAre("1"));
  Operator successor{cluster};
  ASSERT_TRUE(successor.settle(400, 10)) << "longer than pods drain";
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-1")) << "nobody adopts what drains";
  EXPECT_FALSE(cluster.is_true("Reconciling"));
  EXPECT_EQ(group()["restarts"], 0);
  EXPECT_TRUE(told("GroupRestored"));
  EXPECT_EQ(std::count_if(brain.events.begin(), brain.events.end(), [](const Event& event) { return event.reason == "GroupReady"; }), 1);
  cluster.end_worker("m-0-0-1", 5, {{"reason", "RankLost"}});
  ASSERT_TRUE(brain.settle());
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-3")) << "a name that nobody had";
  EXPECT_FALSE(group().contains("givenUp"));
}

TEST_F(Update, AnUpdateThatIsTakenBackAfterWhatServedWasLostStartsAnew) {
  start();
  edit_badly();
  cluster.workers_ready = false;   // nor is the former one any more
  second();
  ASSERT_TRUE(serving().empty());
  take_back();
  ASSERT_TRUE(brain.pass());
  cluster.workers_ready = true;
  ASSERT_TRUE(brain.settle());
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-3"));
  EXPECT_TRUE(cluster.is_true("Ready"));
}

TEST_F(Update, ABlockedUpdateThatIsTakenBackEndsAtOnceAndOthersMaySurge) {
  start_and_block(2);
  ASSERT_EQ(cluster.reason("Stalled"), "RolloutBlocked");
  cluster.edit([](Json& model) { model["spec"]["worker"].erase("image"); });
  ASSERT_TRUE(brain.settle());
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-1", "m-1-0-1"));
  EXPECT_FALSE(cluster.is_true("Stalled"));
  edit();
  ASSERT_TRUE(brain.settle());
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-3", "m-1-0-2"));
  EXPECT_EQ(cluster.model()["status"]["updatedReplicas"], 2);
}

TEST_F(Update, WhatAnUpdateTakenBackLeftServingIsAskedForItsBytesAnew) {
  start();
  cluster.advance(std::chrono::hours(1));
  ASSERT_TRUE(brain.settle());
  EXPECT_THAT(pods_to_probe(cluster.snapshot()), IsEmpty());
  edit_badly();
  take_back();
  ASSERT_TRUE(brain.pass());
  const auto asked = pods_to_probe(cluster.snapshot());
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(k8s::key_of(*asked[0]).name, "m-0-0-1");
  cluster.advance(std::chrono::hours(1));
  EXPECT_THAT(pods_to_probe(cluster.snapshot()), IsEmpty()) << "a worker that never says is not asked for ever";
}

}  // namespace
}  // namespace pm::op::test
