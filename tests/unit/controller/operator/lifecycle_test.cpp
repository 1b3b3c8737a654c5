// SPDX-License-Identifier: Apache-2.0
// Tests a ParallelModel from apply to delete on a FakeCluster.
#include "controller/core/conditions.h"
#include "controller/operator/api/names.h"
#include "tests/unit/controller/operator/simulator/lifecycle_fixture.h"

namespace pm::op::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(Lifecycle, AnAppliedModelIsInspectedPlannedAndServes) {
  start();
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-1"));
  EXPECT_TRUE(cluster.is_true("Planned"));
  EXPECT_TRUE(cluster.is_true("Scheduled"));
  EXPECT_TRUE(cluster.is_true("ModelLoaded"));
  EXPECT_TRUE(cluster.is_true("Ready"));
  EXPECT_FALSE(cluster.is_true("Reconciling"));
  EXPECT_FALSE(cluster.is_true("Stalled"));
  const Json& status = cluster.model()["status"];
  EXPECT_EQ(status["observedGeneration"], 1);
  EXPECT_EQ(status["readyReplicas"], 1);
  EXPECT_EQ(status["plan"]["tensor"], 2);
  EXPECT_EQ(status["plan"]["task"], "generate");
  EXPECT_EQ(status["plan"]["concurrency"], 4);
  EXPECT_EQ(status["endpoint"], "http://m.ns.svc:8000");
  EXPECT_EQ(status["selector"], "parallelmodel.dev/name=m,parallelmodel.dev/node-rank=0,parallelmodel.dev/role=worker");
  EXPECT_EQ(status["replicaStatuses"][0]["ranks"].size(), 2u);
  EXPECT_GT(status["replicaStatuses"][0]["ranks"][0]["predicted"]["weights"], 0);
  EXPECT_TRUE(cluster.find("services", "m"));
  EXPECT_EQ(cluster.all("services").size(), 1u) << "one replica on one node: no names of ranks";
  EXPECT_EQ(cluster.all("configmaps").size(), 1u);
  EXPECT_TRUE(has_event("PlanChosen") && has_event("ReplicaStarted") && has_event("ReplicaReady"));
}

TEST_F(Lifecycle, AModelThatDoesNotGenerateIsSaidToNeedNoCache) {
  cluster.metadata["task"] = "embed";
  cluster.metadata["architecture"] = "BertModel";
  start();
  EXPECT_TRUE(cluster.is_true("Ready"));
  const Json& plan = cluster.model()["status"]["plan"];
  EXPECT_EQ(plan["task"], "embed");
  EXPECT_EQ(plan["architecture"], "BertModel");
  EXPECT_FALSE(plan.contains("concurrency")) << "no cache, so no number of sequences that it holds";
  for (const Json& rank : replica(0)["ranks"]) EXPECT_EQ(rank["predicted"]["kv"], 0);
  for (const Json& condition : cluster.model()["status"]["conditions"]) {
    EXPECT_THAT(condition["message"].get<std::string>(),
                testing::Not(testing::AnyOf(HasSubstr("sequence"), HasSubstr("room for"))))
        << condition;
  }
  EXPECT_THAT(k8s::string_at(*cluster.condition("Planned"), "/message"), HasSubstr("no KV cache"));
}

TEST_F(Lifecycle, AConvergedModelCausesNoRequest) {
  start(2);
  const int before = cluster.requests;
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(fake_operator.reconcile());
    cluster.advance(std::chrono::hours(1));
  }
  EXPECT_EQ(cluster.requests, before);
}

TEST_F(Lifecycle, AKilledRankEndsTheGenerationAndTheNextFollowsAtOnce) {
  start();
  cluster.end_worker("m-0-0-1", 5, words("RankLost", "rank 1 was killed by signal 9"));
  EXPECT_TRUE(fake_operator.reconcile());
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-2"));
  EXPECT_FALSE(cluster.is_true("Ready"));
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
  const Json& failure = cluster.model()["status"]["lastFailure"];
  EXPECT_EQ(failure["reason"], "RankLost");
  EXPECT_EQ(failure["rank"], 1);
  EXPECT_EQ(failure["exitCode"], 5);
  EXPECT_EQ(failure["replicaGeneration"], 1);
  EXPECT_THAT(failure["message"], HasSubstr("signal 9"));
  EXPECT_EQ(replica(0)["restarts"], 1);
  EXPECT_TRUE(has_event("ReplicaRestarted"));
}

TEST_F(Lifecycle, FurtherFailuresWaitTwiceAsLongEachTimeUntilTheBudgetIsSpent) {
  start();
  std::vector<int> waits;
  for (int failure = 1; failure <= 7; ++failure) {
    cluster.end_worker("m-0-0-" + std::to_string(failure), 5, words("RankLost"));
    int seconds = 0;
    const std::string next = "m-0-0-" + std::to_string(failure + 1);
    for (; seconds < 400 && !cluster.find("pods", next); ++seconds) {
      fake_operator.reconcile();
      if (!cluster.find("pods", next)) cluster.tick();
      if (cluster.reason("Stalled") == "RestartBudgetExhausted") break;
    }
    waits.push_back(seconds);
    fake_operator.settle(400, 2);
  }
  EXPECT_EQ(cluster.reason("Stalled"), "RestartBudgetExhausted");
  EXPECT_EQ(cluster.reason("Ready"), "RestartBudgetExhausted");
  EXPECT_EQ(replica(0)["restarts"], 6);
  EXPECT_LE(waits[0], 1);
  for (int i = 1; i < 6; ++i) EXPECT_NEAR(waits[i], std::min(300, 10 << (i - 1)), 2) << "failure " << i + 1;
  EXPECT_TRUE(has_event("RestartBudgetExhausted"));
  const int writes = cluster.writes;
  EXPECT_TRUE(fake_operator.settle());
  EXPECT_EQ(cluster.writes, writes) << "a replica that is abandoned is left alone";

  cluster.edit([](Json& model) { model["metadata"]["annotations"][annotation::restarted_at] = "now"; });
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready")) << "the annotation is the way out";
}

TEST_F(Lifecycle, WhileItBacksOffTheConditionSaysUntilWhen) {
  start();
  cluster.end_worker("m-0-0-1", 5, words("RankLost"));
  ASSERT_TRUE(fake_operator.settle(10));
  cluster.end_worker("m-0-0-2", 137, words("OOMKilled"));
  EXPECT_TRUE(fake_operator.reconcile());
  EXPECT_EQ(cluster.reason("Ready"), "BackingOff");
  EXPECT_THAT(k8s::string_at(*cluster.condition("Ready"), "/message"),
              HasSubstr("the next attempt is at 2026-01-01T00:00"));
  ASSERT_TRUE(fake_operator.requeue.has_value());
  EXPECT_LE(*fake_operator.requeue, std::chrono::seconds(11));
  EXPECT_EQ(cluster.model()["status"]["lastFailure"]["reason"], "OOMKilled");
}

TEST_F(Lifecycle, FailuresOutsideTheWindowAreForgotten) {
  start();
  for (int failure = 1; failure <= 10; ++failure) {
    cluster.end_worker("m-0-0-" + std::to_string(failure), 5, words("RankLost"));
    ASSERT_TRUE(fake_operator.settle());
    EXPECT_TRUE(cluster.is_true("Ready"));
    cluster.advance(std::chrono::hours(2));
  }
  EXPECT_EQ(replica(0)["restarts"], 10);
}

TEST_F(Lifecycle, ADeletedPodAndAVanishedPodAreReplaced) {
  start();
  cluster.delete_pod("m-0-0-1");
  EXPECT_TRUE(fake_operator.reconcile());
  EXPECT_EQ(cluster.reason("Ready"), "RankLost") << "until the old pod has ended";
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-2"));
  EXPECT_TRUE(cluster.is_true("Ready"));
}

TEST_F(Lifecycle, AReplicaThatDoesNotGetReadyInTimeIsMadeAgain) {
  cluster.workers_ready = false;
  start();
  EXPECT_EQ(cluster.reason("Ready"), "Starting");
  ASSERT_TRUE(fake_operator.requeue.has_value());
  cluster.advance(std::chrono::seconds(301));
  cluster.workers_ready = true;
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-2"));
  EXPECT_EQ(cluster.model()["status"]["lastFailure"]["reason"], "StartTimeout");
}

TEST_F(Lifecycle, TimeToPullTheImageDoesNotCount) {
  cluster.workers_start = false;
  start();
  cluster.advance(std::chrono::hours(1));
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-1"));
  EXPECT_EQ(cluster.reason("Scheduled"), "ImagePullFailed");
  EXPECT_EQ(cluster.reason("Ready"), "ImagePullFailed");
}

TEST_F(Lifecycle, ReplicasFollowTheSpecUpAndDownWithoutTouchingOthers) {
  start(1);
  cluster.edit([](Json& model) { model["spec"]["replicas"] = 2; });
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-1", "m-1-0-1"));
  EXPECT_EQ(cluster.model()["status"]["readyReplicas"], 2);
  EXPECT_EQ(cluster.find("poddisruptionbudgets", "m")->at("spec")["minAvailable"], 2);
  cluster.edit([](Json& model) { model["spec"]["replicas"] = 1; });
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-1"));
  EXPECT_EQ(cluster.model()["status"]["replicaStatuses"].size(), 1u);
  cluster.edit([](Json& model) { model["spec"]["replicas"] = 0; });
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_THAT(cluster.pod_names(), IsEmpty());
  EXPECT_EQ(cluster.reason("Ready"), "ScaledToZero");
  EXPECT_FALSE(cluster.is_true("Stalled") || cluster.is_true("Reconciling"));
}

TEST_F(Lifecycle, AnEditOfThePodsReplacesOneReplicaAfterTheOther) {
  start(3);
  cluster.edit([](Json& model) { model["spec"]["worker"]["env"] = Json::array({{{"name", "A"}, {"value", "1"}}}); });
  int least = 3;
  for (int second = 0; second < 60; ++second) {
    fake_operator.reconcile();
    cluster.tick();
    int ready = 0;
    for (const Json& pod : cluster.all("pods"))
      ready += k8s::condition_is_true(at(pod, "/status/conditions"), "Ready") && !k8s::being_deleted(pod) ? 1 : 0;
    least = std::min(least, ready);
  }
  EXPECT_EQ(least, 3) << "each is made beside the one that it replaces";
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-2", "m-1-0-2", "m-2-0-2"));
  EXPECT_EQ(cluster.model()["status"]["updatedReplicas"], 3);
  EXPECT_EQ(replica(0)["restarts"], 0) << "an update is no failure";
  EXPECT_EQ(cluster.all("configmaps").size(), 1u);
}

TEST_F(Lifecycle, ARestartByHandIsReportedAsReconcilingFromItsFirstReconcileToItsLast) {
  start();
  cluster.edit([](Json& model) { model["metadata"]["annotations"][annotation::restarted_at] = "now"; });
  bool swapped = false;
  for (int second = 0; second < 60 && !swapped; ++second) {
    ASSERT_TRUE(fake_operator.reconcile());
    const Json* next = cluster.find("pods", "m-0-0-2");
    swapped = next && k8s::condition_is_true(at(*next, "/status/conditions"), "Ready");
    EXPECT_EQ(cluster.is_true("Reconciling"), !swapped) << "second " << second << ": " << cluster.reason("Reconciling");
    if (second == 0) {
      EXPECT_TRUE(cluster.is_true("Ready")) << "the old replica goes on meanwhile";
      EXPECT_THAT(k8s::string_at(*cluster.condition("Ready"), "/message"),
                  HasSubstr("by the previous plan; the current one: Inspecting"));
    }
    cluster.tick();
  }
  EXPECT_TRUE(swapped);
}

TEST_F(Lifecycle, ChangesThatDoNotReachPodsReplaceNothing) {
  start(2);
  cluster.edit([](Json& model) {
    model["spec"]["failure"]["maxRestarts"] = 3;
    model["spec"]["update"]["maxUnavailable"] = 2;
    model["spec"]["service"] = {{"port", 80}, {"type", "NodePort"}};
  });
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-1", "m-1-0-1"));
  EXPECT_EQ(cluster.find("services", "m")->at("spec")["ports"][0]["port"], 80);
  EXPECT_EQ(cluster.model()["status"]["observedGeneration"], 2);
}

TEST_F(Lifecycle, ANewPlanForKnownFactsNeedsNoSecondInspection) {
  start();
  cluster.log.clear();
  cluster.edit([](Json& model) { model["spec"]["devices"]["count"] = 4; });
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(cluster.model()["status"]["plan"]["tensor"], 4);
  for (const std::string& line : cluster.log) EXPECT_THAT(line, testing::Not(HasSubstr("inspect")));
  EXPECT_EQ(cluster.all("configmaps").size(), 1u) << "the old plan goes with its pods";
}

TEST_F(Lifecycle, SizesBecomeALayoutThatStatusTells) {
  auto model = model_named("m", 4);
  model["spec"]["parallelism"] = {{"sizes", {{"pipeline", 2}}}};
  cluster.apply(model);
  ASSERT_TRUE(fake_operator.settle());
  const Json plan = cluster.model()["status"]["plan"];
  EXPECT_EQ(plan["layout"], "Tensor x 2, Pipeline x 2");
  EXPECT_EQ(plan["reason"], "UserFixed");
  EXPECT_EQ(plan["objective"], "Latency");
  EXPECT_EQ(plan["microBatches"], 2);
  EXPECT_EQ(plan["ranks"], 4);
  EXPECT_FALSE(plan["rejected"].empty());
}

TEST_F(Lifecycle, APlaceThatIsNotOffloadedToIsRefusedByNameWithWhatToUseInstead) {
  auto model = model_named("m");
  model["spec"]["parallelism"] = {{"strategy", "Offload"}, {"offload", {{"to", "HostMemory"}}}};
  cluster.apply(model);
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(cluster.reason("Planned"), "UnsupportedStrategy");
  EXPECT_THAT(k8s::string_at(*cluster.condition("Planned"), "/message"),
              testing::AllOf(HasSubstr("Offload to HostMemory: "), HasSubstr("Use File, or Tensor")));
  cluster.edit([](Json& changed) { changed["spec"]["parallelism"]["offload"]["to"] = "File"; });
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(cluster.model()["status"]["plan"]["layout"], "Offload x 2");
  cluster.edit([](Json& changed) { changed["spec"]["parallelism"] = {{"strategy", "Sharded"}}; });
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(cluster.model()["status"]["plan"]["layout"], "Sharded x 2");
  EXPECT_EQ(cluster.model()["status"]["plan"]["reason"], "UserFixed");
}

TEST_F(Lifecycle, AKvPrecisionIsPlannedForPodsAndStatusHasIt) {
  cluster.apply(model_named("m"));
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_FALSE(cluster.model()["status"]["plan"].contains("kvPrecision"));
  const std::string before = k8s::string_at(cluster.model(), "/status/plan/planHash");
  const auto blocks = [&] {
    const Json plan = Json::parse(k8s::string_at(cluster.all("configmaps").front(), "/data/plan.json"));
    return plan["ranks"][0]["predicted"]["kv"].get<double>() / plan["kvBlocks"].get<double>();
  };
  const double whole = blocks();
  cluster.edit([](Json& model) { model["spec"]["kvPrecision"] = "I8"; });
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(cluster.model()["status"]["plan"]["kvPrecision"], "I8");
  EXPECT_NE(k8s::string_at(cluster.model(), "/status/plan/planHash"), before);
  const Json plan = Json::parse(k8s::string_at(cluster.all("configmaps").front(), "/data/plan.json"));
  EXPECT_EQ(plan["kvPrecision"], "I8") << "the file that the pods of a replica read";
  EXPECT_LT(blocks(), whole / 1.8);
  cluster.edit([](Json& model) { model["spec"].erase("kvPrecision"); });
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(k8s::string_at(cluster.model(), "/status/plan/planHash"), before);
}

TEST_F(Lifecycle, DeletionDuringInspectionLeavesNothing) {
  cluster.apply(model_named("m"));
  EXPECT_TRUE(fake_operator.reconcile());
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-inspect-1"));
  cluster.remove_model();
  fake_operator.settle();
  EXPECT_THAT(cluster.pod_names(), IsEmpty());
  EXPECT_TRUE(cluster.all("configmaps").empty());
}

TEST_F(Lifecycle, AModelThatIsBeingDeletedIsLeftToTheCollector) {
  start();
  cluster.edit([](Json& model) { model["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"; });
  cluster.end_worker("m-0-0-1", 5, words("RankLost"));
  const int before = cluster.requests;
  EXPECT_TRUE(fake_operator.reconcile());
  EXPECT_EQ(cluster.requests, before);
}

TEST_F(Lifecycle, ALostStatusIsAdoptedFromThePods) {
  start();
  for (const char* lost : {"m-0-0-1", "m-0-0-2"}) {  // a replica that starts again has generation 1 or 2
    cluster.end_worker(lost, 5, words("RankLost"));
    fake_operator.settle(400, 2);
  }
  const std::string uid = k8s::string_at(*cluster.find("pods", "m-0-0-3"), "/metadata/uid");
  cluster.edit([](Json& model) { model.erase("status"); });
  FakeOperator successor{cluster};  // a process that does not know what it wrote
  ASSERT_TRUE(successor.settle());
  ASSERT_THAT(cluster.pod_names(), ElementsAre("m-0-0-3"));
  EXPECT_EQ(k8s::string_at(*cluster.find("pods", "m-0-0-3"), "/metadata/uid"), uid) << "it serves, and goes on";
  EXPECT_EQ(replica(0)["replicaGeneration"], 3);
  EXPECT_TRUE(cluster.is_true("Ready"));
}

}  // namespace
}  // namespace pm::op::test
