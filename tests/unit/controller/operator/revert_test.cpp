// SPDX-License-Identifier: Apache-2.0
// Tests updates that are reverted before their replicas serve.
#include "tests/unit/controller/operator/simulator/update_fixture.h"

namespace pm::op::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST_F(Update, AnUpdateThatIsRevertedLeavesWhatServes) {
  cluster.drain_seconds = 5;
  start();
  edit_badly();
  ASSERT_EQ(replica()["previousGeneration"], 1);
  EXPECT_EQ(replica()["replicaGeneration"], 2);
  take_back();
  ASSERT_TRUE(fake_operator.reconcile());
  EXPECT_EQ(replica()["replicaGeneration"], 1);
  EXPECT_FALSE(replica().contains("previousGeneration"));
  EXPECT_EQ(replica()["nodes"], Json({"node-a"}));
  EXPECT_TRUE(replica().contains("loadSeconds"));
  EXPECT_TRUE(cluster.is_true("Ready"));
  EXPECT_EQ(serving()["0"], 1);
  EXPECT_THAT(live_generations()["0"], ElementsAre("1"));
  FakeOperator successor{cluster};
  ASSERT_TRUE(successor.settle(400, 10)) << "longer than pods drain";
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-1")) << "nobody adopts what drains";
  EXPECT_FALSE(cluster.is_true("Reconciling"));
  EXPECT_EQ(replica()["restarts"], 0);
  EXPECT_TRUE(has_event("ReplicaRestored"));
  EXPECT_EQ(std::count_if(fake_operator.events.begin(), fake_operator.events.end(),
                          [](const Event& event) { return event.reason == "ReplicaReady"; }),
            1);
  cluster.end_worker("m-0-0-1", 5, {{"reason", "RankLost"}});
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-3")) << "a name that nobody had";
  EXPECT_FALSE(replica().contains("abandonedGeneration"));
}

TEST_F(Update, AnUpdateThatIsRevertedAfterWhatServedWasLostStartsAgain) {
  start();
  edit_badly();
  cluster.end_worker("m-0-0-1", 5, {{"reason", "RankLost"}});
  ASSERT_TRUE(serving().empty());
  take_back();
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-3"));
  EXPECT_TRUE(cluster.is_true("Ready"));
}

TEST_F(Update, AnUpdateThatIsRevertedWhileWhatServedIsNotReadyKeepsIt) {
  start();
  edit_badly();
  cluster.workers_ready = false;
  second();
  ASSERT_TRUE(serving().empty());
  take_back();
  ASSERT_TRUE(fake_operator.reconcile());
  cluster.workers_ready = true;
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-1"));
  EXPECT_TRUE(cluster.is_true("Ready"));
}

TEST_F(Update, ABlockedUpdateThatIsRevertedEndsAtOnceAndOthersMaySurge) {
  start_and_block(2);
  ASSERT_EQ(cluster.reason("Stalled"), "RolloutBlocked");
  cluster.edit([](Json& model) { model["spec"]["worker"].erase("image"); });
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-1", "m-1-0-1"));
  EXPECT_FALSE(cluster.is_true("Stalled"));
  edit();
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-3", "m-1-0-2"));
  EXPECT_EQ(cluster.model()["status"]["updatedReplicas"], 2);
}

TEST_F(Update, WhatAnUpdateRevertedLeftServingIsAskedForItsBytesAgain) {
  start();
  cluster.advance(std::chrono::hours(1));
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_THAT(pods_to_probe(cluster.snapshot()), IsEmpty());
  edit_badly();
  take_back();
  ASSERT_TRUE(fake_operator.reconcile());
  const auto asked = pods_to_probe(cluster.snapshot());
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(k8s::key_of(*asked[0]).name, "m-0-0-1");
  cluster.advance(std::chrono::hours(1));
  EXPECT_THAT(pods_to_probe(cluster.snapshot()), IsEmpty()) << "a worker that never says is not polled for ever";
}

}  // namespace
}  // namespace pm::op::test
