// SPDX-License-Identifier: Apache-2.0
// Tests planned disruptions (evictions, preemptions, cordoned nodes), queues that hold pods, and unhealthy devices.
#include "tests/unit/controller/operator/simulator/update_fixture.h"

namespace pm::op::test {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class Disruption : public Update {
 protected:
  /// Starts replicas on node-a, and adds node-b with as many free devices.
  void start_beside(int devices, const Json& update = Json::object(), int replicas = 1) {
    Json model = model_named("m", 2, replicas);
    model["spec"]["update"] = update;
    cluster.apply(model);
    ASSERT_TRUE(fake_operator.settle());
    if (devices) cluster.add_node("node-b", devices);
  }
  /// Runs for a while and returns the smallest number of replicas that served.
  size_t least_serving(int time) {
    size_t least = serving().size();
    for (int i = 0; i < time; ++i) second(), least = std::min(least, serving().size());
    return least;
  }
  std::string node_of(const std::string& pod) const {
    const Json* found = cluster.find("pods", pod);
    return found ? k8s::string_at(*found, "/spec/nodeName") : "no such pod";
  }
  std::optional<int64_t> budget() const {
    const Json* found = cluster.find("poddisruptionbudgets", "m");
    return found ? integer_at(*found, "/spec/minAvailable") : std::nullopt;
  }
};

TEST_F(Disruption, EvictionsAndPreemptionsSpendNoRestart) {
  start();
  int times = 0;
  for (const auto& [condition, reason] : {std::pair{"DisruptionTarget", "EvictionByEvictionAPI"},
                                          {"DisruptionTarget", "PreemptionByScheduler"},
                                          {"DisruptionTarget", "DeletionByTaintManager"},
                                          {"DisruptionTarget", "TerminationByKubelet"},
                                          {"TerminationTarget", "Preempted"}}) {
    for (int twice = 0; twice < 2; ++twice) {
      cluster.evict(cluster.pod_names().front(), condition, reason);
      ASSERT_TRUE(fake_operator.settle());
      ASSERT_TRUE(cluster.is_true("Ready")) << "no back-off either: " << message("Ready");
      EXPECT_EQ(replica()["disruptions"], ++times);
      EXPECT_THAT(replica()["lastDisruption"].get<std::string>(), HasSubstr(reason));
    }
  }
  EXPECT_EQ(replica()["restarts"], 0);
  EXPECT_FALSE(replica().contains("restartTimes"));
  EXPECT_FALSE(cluster.model()["status"].contains("lastFailure"));
  EXPECT_TRUE(has_event("ReplicaDisrupted"));
  EXPECT_FALSE(has_event("ReplicaRestarted"));
}

TEST_F(Disruption, ANodeThatLacksMemoryAndADeletedPodAreFailures) {
  start();
  cluster.end_worker("m-0-0-1", 137, "");
  cluster.change_pod("m-0-0-1", [](Json& pod) { pod["status"]["reason"] = "Evicted"; });
  cluster.evict("m-0-0-1", "DisruptionTarget", "TerminationByKubelet");
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(replica()["restarts"], 1);
  cluster.delete_pod("m-0-0-2");
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(replica()["restarts"], 2);
  EXPECT_FALSE(replica().contains("disruptions"));
}

TEST_F(Disruption, ANodeThatFailsIsNoPlannedDisruption) {
  start_beside(2);
  cluster.set_node_ready("node-a", false);
  cluster.evict("m-0-0-1", "DisruptionTarget", "DeletionByTaintManager");
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(cluster.model()["status"]["lastFailure"]["reason"], "NodeLost");
  EXPECT_EQ(replica()["restarts"], 1);
  EXPECT_EQ(node_of("m-0-0-2"), "node-b");
}

TEST_F(Disruption, APodThatIsOnlyAnnouncedServesOn) {
  start();
  cluster.change_pod("m-0-0-1", [&](Json& pod) {
    k8s::set_condition(pod["status"]["conditions"], {"DisruptionTarget", true, "EvictionByEvictionAPI", "", 0},
                       cluster.now());
  });
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-1"));
}

TEST_F(Disruption, OtherPodsOfAnEvictedReplicaFinishTheirRequests) {
  cluster.drain_seconds = 5;
  cluster.put("persistentvolumeclaims", {{"metadata", {{"name", "models"}, {"namespace", "ns"}}},
                                         {"spec", {{"accessModes", {"ReadWriteMany"}}}}});
  Json model = model_named("m");
  model["spec"]["devices"]["perNode"] = 1;
  cluster.apply(model);
  ASSERT_TRUE(fake_operator.settle());
  std::vector<Json> grace;
  cluster.refuse = [&](const k8s::Request& request) -> std::optional<k8s::ApiError> {
    if (request.verb == k8s::Verb::Delete && request.name == "m-0-0-1")
      grace.push_back(at(request.body, "/gracePeriodSeconds"));
    return std::nullopt;
  };
  cluster.evict("m-0-1-1");
  ASSERT_TRUE(fake_operator.reconcile());
  EXPECT_THAT(grace, ElementsAre(Json())) << "the grace period of the pod";
  ASSERT_TRUE(fake_operator.settle(400, 10));
  EXPECT_TRUE(cluster.is_true("Ready"));
}

TEST_F(Disruption, AnUnhealthyDeviceIsLeft) {
  start();
  const auto report = [&](const std::string& pod, const char* health) {
    cluster.change_pod(pod, [&](Json& object) {
      object["status"]["containerStatuses"][0]["allocatedResourcesStatus"] = Json::array(
          {{{"name", "nvidia.com/gpu"}, {"resources", Json::array({{{"resourceID", "GPU-7"}, {"health", health}}})}}});
    });
  };
  report("m-0-0-1", "Unknown");
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-1")) << "a plugin that restarts says nothing about the device";
  report("m-0-0-1", "Unhealthy");
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-2"));
  const Json& failure = cluster.model()["status"]["lastFailure"];
  EXPECT_EQ(failure["reason"], "DeviceFault");
  EXPECT_THAT(failure["message"].get<std::string>(), HasSubstr("nvidia.com/gpu GPU-7"));
  EXPECT_EQ(replica()["restarts"], 1);
}

TEST_F(Disruption, AReplicaLeavesACordonedNodeWithoutAGapWhereThereIsRoom) {
  cluster.drain_seconds = 5;
  start_beside(2);
  EXPECT_EQ(budget(), 1);
  cluster.cordon("node-a");
  EXPECT_EQ(least_serving(20), 1u);
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-2"));
  EXPECT_EQ(node_of("m-0-0-2"), "node-b");
  EXPECT_EQ(budget(), 1) << "an eviction waits for the move";
  EXPECT_EQ(replica()["restarts"], 0);
  EXPECT_TRUE(has_event("ReplicaMoving"));
  EXPECT_FALSE(has_event("ReplicaRestarted"));
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_FALSE(cluster.is_true("Reconciling"));
}

TEST_F(Disruption, WhatIsReplacedByAMoveFinishesItsRequests) {
  start_beside(2);
  std::vector<Json> grace;
  cluster.refuse = [&](const k8s::Request& request) -> std::optional<k8s::ApiError> {
    if (request.verb == k8s::Verb::Delete && request.name == "m-0-0-1")
      grace.push_back(at(request.body, "/gracePeriodSeconds"));
    return std::nullopt;
  };
  cluster.cordon("node-a");
  least_serving(10);
  EXPECT_THAT(grace, ElementsAre(Json()));
}

TEST_F(Disruption, WithoutRoomTheGapIsAnnouncedAndEvictionsMayGoOn) {
  start_beside(0);
  cluster.cordon("node-a");
  EXPECT_EQ(least_serving(10), 1u);
  EXPECT_EQ(budget(), 1);
  EXPECT_THAT(message("Ready"), HasSubstr("without room, evictions may end generation 1 from "));
  EXPECT_EQ(least_serving(30), 1u);
  EXPECT_FALSE(budget()) << "a drain must be able to go on";
  const int writes = cluster.writes;
  cluster.advance(std::chrono::hours(2));
  EXPECT_EQ(least_serving(20), 1u) << "nobody but an eviction ends it";
  EXPECT_LE(cluster.writes, writes + 1);
  cluster.evict("m-0-0-1");
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_FALSE(cluster.is_true("Ready"));
  EXPECT_EQ(cluster.reason("Ready"), "InsufficientDevices");
  cluster.add_node("node-b", 2);
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-2"));
  EXPECT_EQ(budget(), 1);
  EXPECT_EQ(replica()["restarts"], 0);
}

TEST_F(Disruption, ANodeThatIsUncordonedInTimeKeepsItsReplica) {
  start_beside(0);
  cluster.cordon("node-a");
  least_serving(40);
  ASSERT_FALSE(budget());
  cluster.cordon("node-a", false);
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-1"));
  EXPECT_EQ(budget(), 1);
  EXPECT_TRUE(cluster.is_true("Scheduled"));
  EXPECT_TRUE(has_event("ReplicaRestored"));
}

TEST_F(Disruption, AsManyReplicasMoveAtATimeAsMaySurge) {
  cluster.devices = 4;
  start_beside(4, {{"maxSurge", 1}}, 2);
  cluster.cordon("node-a");
  second();
  EXPECT_EQ(live_generations()["0"].size() + live_generations()["1"].size(), 3u);
  EXPECT_EQ(least_serving(30), 2u);
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-2", "m-1-0-2"));
  EXPECT_EQ(budget(), 2);
}

TEST_F(Disruption, WithoutASurgeNothingMovesAndOneReplicaMayBeEvicted) {
  start_beside(8, {{"maxSurge", 0}, {"maxUnavailable", 1}}, 2);
  EXPECT_EQ(budget(), 1);
  cluster.cordon("node-a");
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-1", "m-1-0-1"));
}

TEST_F(Disruption, ATaintThatAnnouncesRemovalIsLeftUnlessItIsTolerated) {
  Json tolerations = Json::array({{{"key", "karpenter.sh/disrupted"}, {"operator", "Exists"}}});
  for (const bool tolerated : {true, false}) {
    start_beside(tolerated ? 2 : 0);
    if (tolerated) cluster.edit([&](Json& model) { model["spec"]["scheduling"]["tolerations"] = tolerations; });
    ASSERT_TRUE(fake_operator.settle());
    Json node = *cluster.find("nodes", "node-a");
    node["spec"]["taints"] = Json::array(
        {{{"key", "other"}, {"effect", "NoSchedule"}}, {{"key", "karpenter.sh/disrupted"}, {"effect", "NoSchedule"}}});
    cluster.put("nodes", node, false);
    second(), second();
    EXPECT_EQ(replica().contains("previousGeneration"), !tolerated);
    node["spec"]["taints"] = Json::array({{{"key", "other"}, {"effect", "NoSchedule"}}});
    cluster.put("nodes", node, false);
    ASSERT_TRUE(fake_operator.settle());
    cluster.remove_model();
    ASSERT_TRUE(fake_operator.settle());
  }
}

TEST_F(Disruption, ASpecThatChangesDuringAMoveIsWhatMoves) {
  start_beside(0);
  cluster.cordon("node-a");
  least_serving(5);
  edit();
  EXPECT_EQ(least_serving(10), 1u);
  cluster.add_node("node-b", 2);
  EXPECT_EQ(least_serving(10), 1u);
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
  ASSERT_EQ(cluster.pod_names().size(), 1u);
  EXPECT_EQ(node_of(cluster.pod_names().front()), "node-b");
  EXPECT_EQ(cluster.model()["status"]["updatedReplicas"], 1);
}

TEST_F(Disruption, AQueueThatHoldsPodsIsToldAndEndsNoSurge) {
  start_beside(8);
  edit();
  for (int i = 0; i < 2; ++i) second();
  cluster.devices = 2;
  const std::string next = "m-0-0-2";
  const auto gate = [&](Json& pod) {
    pod["spec"].erase("nodeName");
    pod["status"] = {
        {"conditions", Json::array({{{"type", "PodScheduled"},
                                     {"status", "False"},
                                     {"reason", "SchedulingGated"},
                                     {"message", "Scheduling is blocked due to non-empty scheduling gates"},
                                     {"lastTransitionTime", k8s::format_time(cluster.now())}}})}};
  };
  cluster.change_pod(next, gate);
  for (int i = 0; i < 100; ++i) fake_operator.reconcile(), cluster.advance(seconds(1));
  EXPECT_EQ(serving()["0"], 1) << "the wait for a queue does not count";
  EXPECT_EQ(cluster.reason("Scheduled"), "QueueWaiting");
  EXPECT_THAT(message("Scheduled"), HasSubstr("scheduling gates"));
  EXPECT_THAT(message("Ready"), HasSubstr("set update.maxSurge to 0 if the quota has no room for both"));
}

TEST_F(Disruption, AReplicaWaitsForItsQueueAndComesBackToItWhenAnotherPreemptsIt) {
  Json model = model_named("m", 2);
  model["spec"]["scheduling"]["queueName"] = "team-a";
  cluster.apply(model);
  const auto admit = [&](const std::string& pod) {
    cluster.change_pod(pod, [](Json& gated) { gated["spec"]["schedulingGates"] = Json::array(); });
    ASSERT_TRUE(fake_operator.settle());
  };
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(cluster.reason("Scheduled"), "QueueWaiting");
  EXPECT_THAT(message("Scheduled"), HasSubstr("pod m-0-0-1: the queue team-a has not admitted it yet; kubectl describe "
                                              "workloads.kueue.x-k8s.io m-0-1 says why"));
  admit("m-0-0-1");
  EXPECT_TRUE(cluster.is_true("Ready"));
  cluster.evict("m-0-0-1", "TerminationTarget", "WorkloadEvictedDueToPreempted");
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(cluster.reason("Scheduled"), "QueueWaiting");
  EXPECT_THAT(message("Scheduled"), HasSubstr("m-0-2 says why"));
  admit("m-0-0-2");
  EXPECT_TRUE(cluster.is_true("Ready"));
  EXPECT_EQ(replica()["disruptions"], 1);
  EXPECT_EQ(replica()["restarts"], 0);
}

}  // namespace
}  // namespace pm::op::test
