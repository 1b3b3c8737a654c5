// SPDX-License-Identifier: Apache-2.0
// Tests rolling updates, replicas over several nodes, and the status during them.
#include "tests/unit/controller/operator/simulator/update_fixture.h"

namespace pm::op::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(Update, TheOldGenerationServesUntilTheNewOneDoes) {
  cluster.drain_seconds = 5;
  start();
  edit();
  for (int i = 0; i < 40; ++i) {
    second();
    EXPECT_GE(serving()["0"], 1) << "second " << i;
    EXPECT_TRUE(cluster.is_true("Ready"));
    if (replica().contains("previousGeneration")) {
      EXPECT_TRUE(cluster.is_true("Reconciling"));
      EXPECT_EQ(cluster.model()["status"]["updatedReplicas"], 0);
      EXPECT_THAT(message("Ready"), HasSubstr("generation 1 serves until generation 2 does"));
    }
  }
  EXPECT_EQ(std::count_if(fake_operator.events.begin(), fake_operator.events.end(),
                          [](const Event& event) { return event.reason == "ReplicaReady"; }),
            2)
      << "of each once";
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-2"));
  EXPECT_FALSE(cluster.is_true("Reconciling"));
  EXPECT_EQ(cluster.model()["status"]["updatedReplicas"], 1);
  EXPECT_EQ(replica()["restarts"], 0);
}

TEST_F(Update, AtMostMaxSurgeReplicasHaveTwoGenerationsAtOnce) {
  for (const int most : {1, 2}) {
    cluster.devices = 16;
    cluster.apply(model_named("m", 2, 3));
    ASSERT_TRUE(fake_operator.settle());
    cluster.edit([&](Json& model) {
      model["spec"]["worker"]["env"] = Json::array({{{"name", "A"}, {"value", std::to_string(most)}}});
      model["spec"]["update"]["maxSurge"] = most;
    });
    size_t seen = 0;
    for (int i = 0; i < 60; ++i) {
      second();
      size_t two = 0;
      for (const auto& [index, alive] : live_generations()) two += alive.size() > 1 ? 1 : 0;
      seen = std::max(seen, two);
      EXPECT_EQ(serving().size(), 3u) << "no replica is down at any moment";
    }
    EXPECT_EQ(seen, static_cast<size_t>(most));
    EXPECT_EQ(cluster.model()["status"]["updatedReplicas"], 3);
  }
}

TEST_F(Update, WithoutRoomTheGapIsAnnouncedAndThenHappens) {
  cluster.devices = 2;
  start();
  edit();
  for (int i = 0; i < 5; ++i) second();
  EXPECT_TRUE(cluster.is_true("Ready"));
  EXPECT_EQ(cluster.reason("Scheduled"), "InsufficientDevices");
  ASSERT_TRUE(fake_operator.requeue);
  EXPECT_LE(*fake_operator.requeue, std::chrono::seconds(30)) << "it looks again when the time for a surge is over";
  EXPECT_THAT(message("Ready"),
              AllOf(HasSubstr("generation 1 serves until generation 2 does"),
                    HasSubstr("replaced in place from 2026-01-01T00:00"), HasSubstr("does not serve meanwhile")));
  int gap = -1;
  for (int i = 5; i < 60; ++i) {
    second();
    if (gap < 0 && serving().empty()) gap = i;
  }
  EXPECT_NEAR(gap, 31, 2);
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-3"));
  EXPECT_TRUE(cluster.is_true("Ready"));
  EXPECT_TRUE(has_event("ReplicaReplacedInPlace"));
  EXPECT_EQ(replica()["restarts"], 0);
}

TEST_F(Update, WithoutRoomAndWithNothingToBeUnavailableItWaitsAndSaysSo) {
  cluster.devices = 4;
  start(2);
  edit({{"maxUnavailable", 0}});
  for (int i = 0; i < 5; ++i) second();
  cluster.advance(std::chrono::minutes(10));
  for (int i = 0; i < 5; ++i) second();
  EXPECT_EQ(serving().size(), 2u);
  EXPECT_THAT(message("Ready"), HasSubstr("update.maxUnavailable is 0, so it waits for room"));
  cluster.devices = 6;
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(cluster.model()["status"]["updatedReplicas"], 2);
}

TEST_F(Update, WithoutRoomOneReplicaAfterTheOtherIsReplaced) {
  cluster.devices = 6;
  start(3);
  edit({{"surgeTimeoutSeconds", 5}});
  size_t least = 3;
  for (int i = 0; i < 90; ++i) second(), least = std::min(least, serving().size());
  EXPECT_EQ(least, 2u);
  EXPECT_EQ(cluster.model()["status"]["updatedReplicas"], 3);
}

TEST_F(Update, AQuotaThatLeavesNoRoomForPodsCountsAsNoRoom) {
  start();
  cluster.refuse = [this](const k8s::Request& request) -> std::optional<k8s::ApiError> {
    const bool second_pod = request.verb == k8s::Verb::Create && request.resource == k8s::pods_resource &&
                            !cluster.with_role("pods", "worker").empty();
    if (!second_pod) return std::nullopt;
    return k8s::ApiError{k8s::Failure::Forbidden, 403, "Forbidden", "exceeded quota: one pod", 0};
  };
  edit();
  for (int i = 0; i < 90; ++i) second();
  EXPECT_EQ(cluster.model()["status"]["updatedReplicas"], 1);
  EXPECT_TRUE(cluster.is_true("Ready"));
}

TEST_F(Update, ANewSpecThatNeverStartsBlocksAndTheOldOneServesOn) {
  start_and_block(3);
  EXPECT_EQ(cluster.reason("Stalled"), "RolloutBlocked");
  EXPECT_EQ(cluster.model()["status"]["readyReplicas"], 3) << "also the replica that was tried";
  EXPECT_THAT(cluster.model()["status"]["lastFailure"]["message"], HasSubstr("usage"));
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-1", "m-0-0-2", "m-1-0-1", "m-2-0-1"));
  const int writes = cluster.writes;
  cluster.advance(std::chrono::hours(3));
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(cluster.writes, writes);
  cluster.edit([](Json& model) { model["spec"]["worker"]["image"] = "good"; });
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(cluster.model()["status"]["updatedReplicas"], 3);
  EXPECT_FALSE(cluster.is_true("Stalled"));
}

TEST_F(Update, AnImageThatIsNoLongerNamedGivesWayToTheOperatorsOwn) {
  Json model = model_named("m");
  model["spec"]["worker"]["image"] = "mine:2";
  cluster.apply(model);
  ASSERT_TRUE(fake_operator.settle());
  const auto image = [&] { return cluster.with_role("pods", "worker").at(0)["spec"]["containers"][0]["image"]; };
  EXPECT_EQ(image(), "mine:2");
  cluster.edit([](Json& edited) { edited["spec"]["worker"].erase("image"); });
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(image(), "parallelmodel-worker:1")
      << "the plan is the same, and kept no image that somebody once asked for";
}

TEST_F(Update, RoomThatComesAtTheLastMomentIsTakenWhenTheOldPodsAreGone) {
  cluster.drain_seconds = 5;
  start();
  cluster.refuse = [](const k8s::Request& request) -> std::optional<k8s::ApiError> {
    if (request.verb != k8s::Verb::Create || request.resource != k8s::pods_resource) return std::nullopt;
    return k8s::ApiError{k8s::Failure::Forbidden, 403, "Forbidden", "exceeded quota: one pod", 0};
  };
  edit();
  for (int i = 0; i < 5; ++i) second();
  cluster.advance(std::chrono::seconds(40));
  cluster.refuse = nullptr;
  ASSERT_TRUE(fake_operator.settle(400, 10));  // a pod beside the old one would be a violation
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-3"));
}

TEST_F(Update, PodsThatAreReplacedHaveTheirOwnGraceAndLostOnesFiveSeconds) {
  std::map<std::string, Json> graces;
  cluster.refuse = [&](const k8s::Request& request) -> std::optional<k8s::ApiError> {
    if (request.verb == k8s::Verb::Delete && request.resource == k8s::pods_resource)
      graces[request.name] = at(request.body, "/gracePeriodSeconds");
    return std::nullopt;
  };
  start();
  edit();
  ASSERT_TRUE(fake_operator.settle());
  ASSERT_TRUE(graces.contains("m-0-0-1"));
  EXPECT_TRUE(graces["m-0-0-1"].is_null()) << "it may finish its requests";
  cluster.end_worker("m-0-0-2", 5, {{"reason", "RankLost"}});
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(graces["m-0-0-2"], 5);
}

TEST_F(Update, WithoutRoomTheUpdateWaitsForAPreviousPodThatGoesAnyway) {
  cluster.devices = 2;
  cluster.drain_seconds = 60;
  start();
  edit();
  for (int i = 0; i < 5; ++i) second();
  ASSERT_EQ(replica()["previousGeneration"], 1);
  cluster.delete_pod("m-0-0-1");
  second();
  EXPECT_FALSE(replica().contains("previousGeneration"));
  cluster.advance(std::chrono::seconds(31));
  second();
  EXPECT_EQ(replica()["replicaGeneration"], 2) << "its room comes: nothing is replaced for want of it";
  ASSERT_TRUE(fake_operator.settle(400, 70));
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-2"));
}

TEST_F(Update, WhatIsGoneWhenItIsDeletedOrLookedAtIsNoError) {
  start(2);
  cluster.refuse = [](const k8s::Request& request) -> std::optional<k8s::ApiError> {
    if (request.verb != k8s::Verb::Delete) return std::nullopt;
    return k8s::ApiError{k8s::Failure::NotFound, 404, "NotFound", request.name + " not found", 0};
  };
  cluster.edit([](Json& model) { model["spec"]["replicas"] = 1; });
  EXPECT_TRUE(fake_operator.reconcile());
  cluster.refuse = nullptr;
  ASSERT_TRUE(fake_operator.settle());
  bool gone = false;
  cluster.refuse = [&](const k8s::Request& request) -> std::optional<k8s::ApiError> {
    if (gone || request.verb != k8s::Verb::Get || request.name != "m") return std::nullopt;
    gone = true;
    cluster.send({.verb = k8s::Verb::Delete,
                  .resource = k8s::services_resource,
                  .ns = "ns",
                  .name = "m",
                  .body = {{"preconditions", {{"uid", k8s::uid_of(*cluster.find("services", "m"))}}}}});
    return std::nullopt;
  };
  cluster.edit([](Json& model) { model["spec"]["service"]["port"] = 80; });
  EXPECT_TRUE(fake_operator.reconcile());
  EXPECT_TRUE(gone);
}

TEST_F(Update, AnEditForgetsTheRestartsOfThePreviousSpec) {
  start();
  cluster.end_worker("m-0-0-1", 5, {{"reason", "RankLost"}});
  ASSERT_TRUE(fake_operator.settle());
  ASSERT_EQ(replica()["restartTimes"].size(), 1u);
  edit();
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_FALSE(replica().contains("restartTimes"));
  EXPECT_EQ(replica()["restarts"], 1) << "the count is of its whole life";
}

TEST_F(Update, AnOldReplicaThatDiesDuringItsUpdateIsNotMadeAgain) {
  start();
  cluster.workers_ready = false;
  edit();
  for (int i = 0; i < 5; ++i) second();
  cluster.end_worker("m-0-0-1", 5, {{"reason", "RankLost"}});
  second();
  EXPECT_FALSE(replica().contains("previousGeneration"));
  cluster.workers_ready = true;
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-2"));
}

TEST_F(Update, AReplicaThatIsWantedAgainWhileItsPodsDrainHasLostNothing) {
  cluster.drain_seconds = 20;
  start(2);
  const auto scale = [&](int replicas) {
    cluster.edit([&](Json& model) { model["spec"]["replicas"] = replicas; });
    ASSERT_TRUE(fake_operator.reconcile());
    cluster.tick();
  };
  scale(1);
  EXPECT_EQ(serving(), (std::map<std::string, int>{{"0", 1}}));
  EXPECT_EQ(replica(1)["reason"], "ScalingDown");
  EXPECT_FALSE(replica(1)["ready"].get<bool>());
  scale(2);
  ASSERT_TRUE(fake_operator.settle(400, 25)) << "longer than they drain";
  EXPECT_TRUE(cluster.is_true("Ready"));
  EXPECT_EQ(cluster.model()["status"]["readyReplicas"], 2);
  EXPECT_EQ(replica(1)["restarts"], 0);
  EXPECT_EQ(replica(1)["replicaGeneration"], 2) << "a name of its own beside the pods that drain";
  EXPECT_FALSE(cluster.model()["status"].contains("lastFailure"));
  EXPECT_FALSE(has_event("ReplicaRestarted"));
}

TEST_F(Update, AReplicaThatIsWantedAgainAfterTheOperatorDiedWhileScalingDownHasLostNothing) {
  cluster.drain_seconds = 20;
  start(2);
  const auto scale = [&](int replicas) { cluster.edit([&](Json& model) { model["spec"]["replicas"] = replicas; }); };
  scale(1);
  FakeOperator dies{cluster};
  dies.one_request_lives = true;
  const auto drains = [&] { return k8s::being_deleted(*cluster.find("pods", "m-1-0-1")); };
  for (int i = 0; i < 20 && !drains(); ++i) dies.reconcile();
  ASSERT_TRUE(drains());
  scale(2);
  ASSERT_TRUE(fake_operator.settle(400, 25));
  EXPECT_EQ(replica(1)["restarts"], 0) << "it was written before its pods were deleted";
  EXPECT_EQ(replica(1)["replicaGeneration"], 2);
  EXPECT_FALSE(cluster.model()["status"].contains("lastFailure"));
}

TEST_F(Update, ThePlanOfWhatServesStaysUntilItsPodsAreGone) {
  start();
  const std::string plan = cluster.with_role("configmaps", "plan").at(0)["metadata"]["name"];
  cluster.workers_start = false;
  cluster.edit([](Json& model) { model["spec"]["devices"]["count"] = 4; });
  for (int i = 0; i < 8; ++i) {
    second();
    EXPECT_TRUE(cluster.find("configmaps", plan)) << "second " << i;
  }
  ASSERT_EQ(cluster.with_role("configmaps", "plan").size(), 2u);
  cluster.workers_start = true;
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_FALSE(cluster.find("configmaps", plan));
  EXPECT_EQ(std::count(cluster.log.begin(), cluster.log.end(), "Delete configmaps " + plan), 1);
}

TEST_F(Update, APodThatWentWhileNobodyLookedIsAFailureOfItsReplica) {
  start();
  cluster.delete_pod("m-0-0-1");
  for (int i = 0; i < 5; ++i) cluster.tick();
  ASSERT_THAT(cluster.with_role("pods", "worker"), IsEmpty());
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-2"));
  EXPECT_EQ(replica()["restarts"], 1);
  EXPECT_EQ(cluster.model()["status"]["lastFailure"]["reason"], "RankLost");
}

TEST_F(Update, AnUnhealthyReplicaIsReplacedAtOnceAndInPlace) {
  start();
  cluster.workers_ready = false;
  for (int i = 0; i < 3; ++i) second();
  cluster.workers_ready = true;
  edit();
  fake_operator.reconcile();
  EXPECT_FALSE(replica().contains("previousGeneration"));
  EXPECT_EQ(replica()["replicaGeneration"], 2);
  ASSERT_TRUE(fake_operator.settle());
}

TEST_F(Update, HalfAReplicaIsReleasedAndTriedAgainLater) {
  start_half();
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-1", "m-0-1-1"));
  EXPECT_EQ(cluster.reason("Scheduled"), "InsufficientDevices");
  ASSERT_TRUE(fake_operator.requeue.has_value());
  EXPECT_LE(*fake_operator.requeue, std::chrono::seconds(301));
  std::vector<int64_t> waits;
  for (int i = 0; i < 4; ++i) {
    cluster.advance(std::chrono::seconds(301));
    EXPECT_TRUE(fake_operator.reconcile());
    EXPECT_EQ(cluster.reason("Scheduled"), "ReplicaWaiting");
    EXPECT_EQ(cluster.reason("Ready"), "ReplicaWaiting");
    EXPECT_THAT(message("Scheduled"), HasSubstr("not all of its 2 pods found a node within 300 s"));
    waits.push_back((*k8s::parse_time(replica()["waitUntil"].get<std::string>()) - cluster.now()) /
                    std::chrono::seconds(1));
    for (int s = 0; s < 3; ++s) second();
    EXPECT_THAT(cluster.with_role("pods", "worker"), IsEmpty()) << "both were released";
    cluster.advance(std::chrono::seconds(waits.back()));
    ASSERT_TRUE(fake_operator.settle());
    EXPECT_EQ(cluster.with_role("pods", "worker").size(), 2u);
  }
  for (int i = 0; i < 4; ++i) {
    EXPECT_GE(waits[static_cast<size_t>(i)], 5 << i);
    EXPECT_LE(waits[static_cast<size_t>(i)], 15 << i);
  }
  EXPECT_EQ(replica()["restarts"], 0) << "that is no failure";
  EXPECT_EQ(replica()["waits"], 4);
  cluster.add_node("node-b", 1);
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
  EXPECT_FALSE(replica().contains("waits")) << "forgotten once all have a node";
  EXPECT_TRUE(has_event("ReplicaWaiting"));
}

TEST_F(Update, AReplicaOfWhichNoPodHasANodeKeepsNothingFromOthersAndWaits) {
  cluster.devices = 0;
  cluster.put("persistentvolumeclaims", {{"metadata", {{"name", "models"}, {"namespace", "ns"}}},
                                         {"spec", {{"accessModes", {"ReadWriteMany"}}}}});
  Json model = model_named("m");
  model["spec"]["devices"]["perNode"] = 1;
  cluster.apply(model);
  ASSERT_TRUE(fake_operator.settle());
  cluster.advance(std::chrono::hours(1));
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(replica()["replicaGeneration"], 1);
}

TEST_F(Update, AClaimForOneNodeIsNoClaimForAReplicaOverTwo) {
  Json model = model_named("m");
  model["spec"]["devices"]["perNode"] = 1;
  cluster.apply(model);
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(cluster.reason("Planned"), "ClaimNotFound");
  EXPECT_THAT(message("Planned"), HasSubstr("PersistentVolumeClaim models is not in namespace ns"));
  cluster.put("persistentvolumeclaims", {{"metadata", {{"name", "models"}, {"namespace", "ns"}}},
                                         {"spec", {{"accessModes", {"ReadWriteOnce"}}}}});
  cluster.advance(std::chrono::seconds(31));
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(cluster.reason("Planned"), "ClaimNotShareable");
  EXPECT_EQ(cluster.reason("Stalled"), "ClaimNotShareable");
  EXPECT_THAT(message("Ready"),
              AllOf(HasSubstr("models is ReadWriteOnce"), HasSubstr("2 pods"), HasSubstr("devices.perNode")));
  cluster.edit([](Json& changed) { changed["spec"]["devices"].erase("perNode"); });
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready")) << "on one node the claim will do";
}

TEST_F(Update, EveryConditionSpeaksOfTheSameGeneration) {
  start();
  const auto generations = [&] {
    std::vector<int> out{cluster.model()["status"]["observedGeneration"].get<int>()};
    for (const Json& condition : cluster.model()["status"]["conditions"])
      out.push_back(condition["observedGeneration"].get<int>());
    return out;
  };
  EXPECT_THAT(generations(), AllOf(testing::SizeIs(7), Each(1)));
  edit();
  EXPECT_TRUE(fake_operator.reconcile());
  EXPECT_THAT(generations(), Each(2));
  cluster.edit([](Json& model) { model["spec"]["model"]["source"] = "s3://bucket"; });
  EXPECT_TRUE(fake_operator.reconcile());
  EXPECT_THAT(generations(), Each(3));
}

TEST_F(Update, ASpecThatCannotBeReadLeavesTheReplicasAndTellsOfThem) {
  start();
  cluster.edit([](Json& model) { model["spec"]["model"]["source"] = "s3://bucket"; });
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(cluster.reason("Planned"), "InvalidSizes");
  EXPECT_THAT(message("Planned"), HasSubstr("s3://bucket"));
  EXPECT_TRUE(cluster.is_true("Ready"));
  EXPECT_EQ(cluster.model()["status"]["endpoint"], "http://m.ns.svc:8000");
  cluster.end_worker("m-0-0-1", 5, {{"reason", "OOMKilled"}});
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_FALSE(cluster.is_true("Ready")) << "what runs is still judged";
  EXPECT_EQ(cluster.model()["status"]["lastFailure"]["reason"], "OOMKilled");
  cluster.edit([](Json& model) { model["spec"]["model"]["source"] = "pvc://models/gpt2"; });
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
}

TEST_F(Update, AStatusOfWhichTheServerTakesOnlyTheLeastStillLetsReplicasLive) {
  cluster.refuse = [](const k8s::Request& request) -> std::optional<k8s::ApiError> {
    const bool much = request.subresource == "status" && (request.body["status"].contains("plan") ||
                                                          request.body.dump().find("\"nodes\":") != std::string::npos);
    return much ? std::optional(k8s::ApiError{k8s::Failure::Invalid, 422, "Invalid", "status.plan: Too long", 0})
                : std::nullopt;
  };
  start();
  EXPECT_TRUE(cluster.is_true("Ready"));
  cluster.end_worker("m-0-0-1", 5, {{"reason", "RankLost"}});
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-2"));
  EXPECT_TRUE(cluster.is_true("Ready"));
}

TEST_F(Update, MoreRestartsLetAReplicaThatWasAbandonedTryAgain) {
  start();
  cluster.edit([](Json& model) { model["spec"]["failure"]["maxRestarts"] = 0; });
  ASSERT_TRUE(fake_operator.settle());
  cluster.end_worker("m-0-0-1", 5, {{"reason", "RankLost"}});
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(cluster.reason("Stalled"), "RestartBudgetExhausted");
  EXPECT_THAT(message("Stalled"), HasSubstr("failure.maxRestarts"));
  cluster.edit([](Json& model) { model["spec"]["failure"]["maxRestarts"] = 1; });
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
}

}  // namespace
}  // namespace pm::op::test
