// SPDX-License-Identifier: Apache-2.0
// Tests the lifecycle of a replica over two nodes, as the planner derives it from pods alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/operator/api/object_text.h"
#include "controller/operator/replicas/replica_planner.h"
#include "tests/unit/controller/operator/simulator/fake_operator.h"

namespace pm::op::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class TwoNodes : public testing::Test {
 protected:
  TwoNodes() : model(model_named("m", 2)) {
    model["metadata"]["uid"] = "uid-1";
    model["spec"]["failure"]["startSeconds"] = 300;
    spec = parse_spec(model);
    owner = parse_owner(model);
    const ModelMetadata metadata = metadata_from_json(small_metadata());
    stored = stored_plan(plan_config_map(
        owner, spec, metadata,
        *decide(metadata, {.devices = 2, .device_memory = int64_t{2} << 30}, {.max_concurrency = 4}).plan, "w",
        std::nullopt));
    spec.devices.per_node = 1;
    layout = make_pod_layout(spec, stored.plan);
    snapshot.now = *k8s::parse_time("2026-01-01T01:00:00Z");
    snapshot.nodes.emplace();
    add_node("a", true);
    add_node("b", true);
    record.pod_hash = hash();
    record.created = true;
    record.nodes = {"a", "b"};
  }

  PodInputs inputs() { return {owner, spec, stored, layout, worker}; }
  std::string hash() { return pod_hash_of(inputs()); }

  void add_node(const std::string& name, bool ready) {
    snapshot.nodes->push_back(std::make_shared<const Json>(
        Json{{"metadata", {{"name", name}}},
             {"status", {{"conditions", {{{"type", "Ready"}, {"status", ready ? "True" : "False"}}}}}}}));
  }

  Json pod(int node, int64_t replica_generation = 1, bool ready = true) {
    Json pod = replica_pod(inputs(), 0, node, replica_generation, hash());
    pod["metadata"]["uid"] = "pod-" + std::to_string(node) + "-" + std::to_string(replica_generation);
    pod["spec"]["nodeName"] = node == 0 ? "a" : "b";
    pod["status"] = {{"conditions", {{{"type", "Ready"}, {"status", ready ? "True" : "False"}}}},
                     {"containerStatuses",
                      {{{"name", "worker"}, {"state", {{"running", {{"startedAt", "2026-01-01T00:59:00Z"}}}}}}}}};
    return pod;
  }
  static Json ended(Json pod, int code, const Json& words) {
    pod["status"]["containerStatuses"][0]["state"] = {
        {"terminated", {{"exitCode", code}, {"message", words.dump()}, {"finishedAt", "2026-01-01T00:59:59Z"}}}};
    return pod;
  }
  static Json deleting(Json pod) {
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:59:59Z";
    return pod;
  }

  ReplicaPlan judge(const std::vector<Json>& pods) {
    snapshot.pods.clear();
    for (const Json& one : pods) snapshot.pods.push_back(std::make_shared<const Json>(one));
    return plan_replicas({spec, snapshot, {record}, worker_pods(snapshot), Wanted{inputs(), hash()}});
  }
  static std::vector<std::string> words(const ReplicaPlan& replicas) {
    std::vector<std::string> out;
    for (const k8s::Request& action : replicas.actions) {
      std::string grace =
          action.body.contains("gracePeriodSeconds") ? " " + action.body["gracePeriodSeconds"].dump() : "";
      out.push_back((action.verb == k8s::Verb::Create ? "+" : "-") + action.name + grace);
    }
    return out;
  }

  Json model;
  Spec spec;
  Owner owner;
  StoredPlan stored;
  PodLayout layout;
  Settings worker = settings();
  Snapshot snapshot;
  ReplicaRecord record;
};

TEST_F(TwoNodes, BothPodsReadyMeansReady) {
  EXPECT_TRUE(judge({pod(0), pod(1)}).records[0].ready);
  EXPECT_FALSE(judge({pod(0), pod(1, 1, false)}).records[0].ready);
  EXPECT_THAT(judge({pod(0), pod(1)}).actions, IsEmpty());
}

TEST_F(TwoNodes, ANewReplicaGetsBothPodsAtOnce) {
  record.created = false;
  record.nodes.clear();
  EXPECT_THAT(words(judge({})), ElementsAre("+m-0-0-1", "+m-0-1-1"));
  EXPECT_THAT(words(judge({pod(0)})), ElementsAre("+m-0-1-1")) << "the rest after a crash in between";
}

TEST_F(TwoNodes, WhenOnePodEndsTheOtherIsGivenFiveSecondsAndTheNextGenerationWaitsForIt) {
  const ReplicaPlan replicas = judge({ended(pod(0), 5, {{"reason", "CommunicatorAborted"}}),
                                      ended(pod(1), 137, {{"reason", "OOMKilled"}, {"rank", 1}})});
  EXPECT_TRUE(replicas.commit);
  EXPECT_EQ(replicas.records[0].replica_generation, 2);
  EXPECT_EQ(replicas.failure->exit.reason, "OOMKilled") << "the cause, not the consequence";
  EXPECT_EQ(replicas.failure->exit.rank, 1);
  EXPECT_THAT(words(replicas), ElementsAre("-m-0-0-1 5", "-m-0-1-1 5", "+m-0-0-2", "+m-0-1-2"));
  const ReplicaPlan waits = judge({ended(pod(0), 5, {{"reason", "RankLost"}}), pod(1)});
  EXPECT_THAT(words(waits), ElementsAre("-m-0-0-1 5", "-m-0-1-1 5")) << "one may still live";
}

TEST_F(TwoNodes, APodThatVanishedTakesItsReplica) {
  const ReplicaPlan replicas = judge({pod(0)});
  EXPECT_EQ(replicas.records[0].replica_generation, 2);
  EXPECT_EQ(replicas.failure->exit.reason, "RankLost");
  EXPECT_THAT(words(replicas), ElementsAre("-m-0-0-1 5"));
}

TEST_F(TwoNodes, ADeletedPodOnADeadNodeCountsAsFenced) {
  snapshot.nodes->pop_back();
  add_node("b", false);
  record.replica_generation = 2;
  record.created = false;
  record.nodes.clear();
  EXPECT_THAT(words(judge({deleting(pod(1))})), ElementsAre("+m-0-0-2", "+m-0-1-2"));
  snapshot.nodes->pop_back();
  add_node("b", true);
  EXPECT_THAT(words(judge({deleting(pod(1))})), IsEmpty()) << "a living node must say that the pod ended";
  snapshot.nodes.reset();
  EXPECT_THAT(words(judge({deleting(pod(1))})), IsEmpty()) << "without a view of nodes nothing is fenced";
}

TEST_F(TwoNodes, APodLostWithItsNodeIsSaidSo) {
  snapshot.nodes->pop_back();
  EXPECT_EQ(judge({pod(0), deleting(pod(1))}).failure->exit.reason, "NodeLost");
  EXPECT_EQ(judge({pod(0)}).failure->exit.reason, "NodeLost");
}

TEST_F(TwoNodes, PodsThatTheKubeletRefusedOrEvictedAreLosses) {
  Json refused = pod(1);
  refused["status"] = {{"phase", "Failed"}, {"reason", "UnexpectedAdmissionError"}, {"message", "Allocate failed"}};
  EXPECT_EQ(judge({pod(0), refused}).failure->exit.reason, "DeviceFault");
  refused["status"]["reason"] = "Evicted";
  EXPECT_EQ(judge({pod(0), refused}).failure->exit.reason, "NodeLost");
}

TEST_F(TwoNodes, WhatSurvivesOfAReplicaThatIsAbandonedGoesToo) {
  spec.failure.max_restarts = 0;
  const ReplicaPlan replicas = judge({ended(pod(0), 5, {{"reason", "RankLost"}}), pod(1)});
  EXPECT_TRUE(replicas.exhausted);
  EXPECT_THAT(words(replicas), ElementsAre("-m-0-1-1 5"));
}

TEST_F(TwoNodes, HalfAReplicaIsLookedAtWhenItIsToBeReleased) {
  Json unbound = pod(1, 1, false), bound = pod(0, 1, false);
  unbound["spec"].erase("nodeName");
  unbound["status"] = {{"phase", "Pending"}};
  bound["status"]["conditions"].push_back(
      {{"type", "PodScheduled"}, {"status", "True"}, {"lastTransitionTime", "2026-01-01T00:59:00Z"}});
  EXPECT_EQ(*judge({bound, unbound}).wake, *k8s::parse_time("2026-01-01T00:59:00Z") + spec.scheduling.timeout);
}

TEST_F(TwoNodes, TheStartIsCountedFromTheLastPod) {
  Json late = pod(1, 1, false);
  late["status"]["containerStatuses"][0]["state"]["running"]["startedAt"] = "2026-01-01T00:59:30Z";
  const ReplicaPlan replicas = judge({pod(0, 1, false), late});
  EXPECT_FALSE(replicas.failure);
  EXPECT_EQ(*replicas.wake, *k8s::parse_time("2026-01-01T01:04:30Z"));
  snapshot.now += std::chrono::minutes(6);
  EXPECT_EQ(judge({pod(0, 1, false), late}).failure->exit.reason, "StartTimeout");
}

TEST_F(TwoNodes, LastWordsOfAWorkerAreUntrusted) {
  for (const Json& words :
       {Json("{"), Json(7), Json{{"reason", Json::array()}, {"rank", -5}, {"message", std::string(5000, '\x01')}},
        Json{{"reason", "not a word"}, {"rank", "x"}}, Json{{"rank", 1e300}}, Json(nullptr)}) {
    const ReplicaPlan replicas = judge({pod(0), ended(pod(1), 1, words)});
    ASSERT_TRUE(replicas.failure);
    EXPECT_EQ(replicas.failure->exit.reason, "RankLost");
    EXPECT_FALSE(replicas.failure->exit.rank);
    EXPECT_LE(replicas.failure->exit.message.size(), 1000u);
  }
}

TEST_F(TwoNodes, BytesOfRanksComeFromTheOpsPortOnce) {
  snapshot.probes["m-0-0-1"] = {
      {"state", "Ready"},
      {"replicaGeneration", 1},
      {"ranks",
       {{{"rank", 0}, {"state", "Ready"}, {"loadSeconds", 1.5}, {"measured", {{"weights", 10}, {"kv", 20}}}},
        {{"rank", 1}, {"state", "Loading"}},
        {{"rank", 9}}}}};
  const auto records = judge({pod(0), pod(1)}).records;
  ASSERT_EQ(records[0].ranks.size(), 2u);
  EXPECT_EQ(records[0].ranks[0].measured->weights, 10);
  EXPECT_FALSE(records[0].ranks[1].measured);
  EXPECT_EQ(records[0].ranks[1].node, "b");
  snapshot.probes["m-0-0-1"]["replicaGeneration"] = 2;
  EXPECT_FALSE(judge({pod(0), pod(1)}).records[0].ranks[0].measured) << "another life of the replica";
}

TEST_F(TwoNodes, WhileLoadingTheConditionCountsBytes) {
  snapshot.probes["m-0-0-1"] = {
      {"state", "Loading"},
      {"replicaGeneration", 1},
      {"ranks",
       {{{"rank", 0}, {"loadBytes", 5 << 20}, {"loadTotal", 10 << 20}}, {{"rank", 1}, {"loadTotal", 10 << 20}}}}};
  const auto records = judge({pod(0, 1, false), pod(1, 1, false)}).records;
  EXPECT_EQ(records[0].reason, "Loading");
  EXPECT_EQ(records[0].message, "loads 5.0 MiB of 20.0 MiB");
  snapshot.probes["m-0-0-1"]["ranks"][0]["loadSeconds"] = 2.5;
  EXPECT_EQ(judge({pod(0, 1, false), pod(1, 1, false)}).records[0].message,
            "loads 5.0 MiB of 20.0 MiB, 2.0 MiB/s, 8 s left");
}

TEST(Backoff, DoublesFromTheSecondFailureToTheMost) {
  FailurePolicy policy;
  ReplicaRecord record;
  const k8s::WallTime start = *k8s::parse_time("2026-01-01T00:00:00Z");
  std::vector<int64_t> waits;
  for (int i = 0; i < 8; ++i) {
    record.restart_times.push_back(start + std::chrono::minutes(i));
    waits.push_back(
        std::chrono::duration_cast<std::chrono::seconds>(backoff_until(record, policy) - record.restart_times.back())
            .count());
  }
  EXPECT_THAT(waits, ElementsAre(0, 10, 20, 40, 80, 160, 300, 300));
}

}  // namespace
}  // namespace pm::op::test
