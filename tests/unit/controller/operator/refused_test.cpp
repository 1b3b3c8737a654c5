// SPDX-License-Identifier: Apache-2.0
// Tests requests that the API server refuses and objects that are missing: both are reported and tried again.
#include "controller/core/conditions.h"
#include "controller/operator/api/names.h"
#include "tests/unit/controller/operator/simulator/lifecycle_fixture.h"

namespace pm::op::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(Lifecycle, AModelThatDoesNotFitGetsNumbersAndNoPod) {
  auto model = model_named("m");
  model["spec"]["resources"]["memory"] = "64Mi";
  cluster.apply(model);
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(cluster.reason("Planned"), "DoesNotFit");
  EXPECT_EQ(cluster.reason("Ready"), "DoesNotFit");
  EXPECT_TRUE(cluster.is_true("Stalled"));
  EXPECT_THAT(k8s::string_at(*cluster.condition("Planned"), "/message"), HasSubstr("32.0 MiB per device"));
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-inspect-1")) << "the home of the metadata";
  EXPECT_EQ(cluster.find("services", "m"), nullptr);
  cluster.edit([](Json& model) { model["spec"]["resources"]["memory"] = "4Gi"; });
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
}

TEST_F(Lifecycle, AnEditThatDoesNotFitLeavesTheLastGoodPlanServing) {
  start();
  cluster.edit([](Json& model) { model["spec"]["resources"]["memory"] = "64Mi"; });
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(cluster.reason("Planned"), "DoesNotFit");
  EXPECT_TRUE(cluster.is_true("Ready"));
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-1"));
  cluster.end_worker("m-0-0-1", 5, words("RankLost"));
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_FALSE(cluster.is_true("Ready"));
}

TEST_F(Lifecycle, AnUnreadableCheckpointIsNamedAndTriedAgainLater) {
  cluster.inspect_failure =
      Json{{"reason", "ModelUnreadable"}, {"message", "model.safetensors: tensor h.0.attn ends after the file"}};
  start();
  EXPECT_EQ(cluster.reason("Planned"), "ModelUnreadable");
  EXPECT_TRUE(cluster.is_true("Stalled"));
  EXPECT_THAT(k8s::string_at(*cluster.condition("Ready"), "/message"), HasSubstr("h.0.attn"));
  ASSERT_TRUE(fake_operator.requeue.has_value());
  cluster.inspect_failure.reset();
  cluster.advance(std::chrono::minutes(6));
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
}

TEST_F(Lifecycle, HostileFactsAreRefusedWithoutHarm) {
  for (const Json& words : {Json("[[[["), Json::array(), Json{{"model_type", 7}}, Json("\xF0\x9F\x98\x80 {"),
                            Json(std::string(4096, '{')), Json{{"reason", std::string(3000, 'x')}, {"message", 5}}}) {
    FakeCluster other;
    other.metadata = words;
    FakeOperator mind{other};
    other.apply(model_named("m"));
    ASSERT_TRUE(mind.settle());
    EXPECT_EQ(other.reason("Planned"), "InspectFailed") << words.dump();
  }
}

TEST_F(Lifecycle, AMissingClaimIsNamedAndWaitedFor) {
  cluster.claim_exists = false;
  start();
  EXPECT_EQ(cluster.reason("Planned"), "ClaimNotFound");
  EXPECT_FALSE(cluster.is_true("Stalled"));
  cluster.claim_exists = true;
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
}

TEST_F(Lifecycle, TooFewDevicesAreCounted) {
  cluster.devices = 1;
  start();
  EXPECT_TRUE(cluster.is_true("Planned")) << "missing nodes are no reason against a plan";
  EXPECT_EQ(cluster.reason("Scheduled"), "InsufficientDevices");
  EXPECT_EQ(cluster.reason("Ready"), "InsufficientDevices");
  EXPECT_THAT(k8s::string_at(*cluster.condition("Scheduled"), "/message"),
              HasSubstr("needs 2 nvidia.com/gpu on one node, free"));
  cluster.devices = 2;
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
}

TEST_F(Lifecycle, AVolumeThatDoesNotComeIsNamedByWhatEventsSay) {
  cluster.mount_failure = "MountVolume.SetUp failed for volume models: no such share";
  start();
  EXPECT_EQ(cluster.reason("Scheduled"), "Inspecting") << "for a while that is normal";
  EXPECT_THAT(cluster.log, testing::Not(testing::Contains(HasSubstr("List"))));
  cluster.advance(std::chrono::seconds(20));
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(cluster.reason("Scheduled"), "VolumeNotMounted");
  EXPECT_EQ(cluster.reason("Ready"), "VolumeNotMounted");
  EXPECT_THAT(k8s::string_at(*cluster.condition("Ready"), "/message"), HasSubstr("no such share"));
  cluster.mount_failure.clear();
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
}

TEST_F(Lifecycle, OfManyPodsThatWaitForAVolumeOneIsAskedAbout) {
  start();
  cluster.mount_failure = "MountVolume.SetUp failed for volume models: no such share";
  cluster.edit([](Json& model) { model["spec"]["replicas"] = 9; });
  ASSERT_TRUE(fake_operator.settle());
  cluster.log.clear();
  cluster.advance(std::chrono::seconds(20));
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(cluster.reason("Scheduled"), "VolumeNotMounted");
  const auto lists = std::count_if(cluster.log.begin(), cluster.log.end(),
                                   [](const std::string& line) { return line.starts_with("List"); });
  EXPECT_GE(lists, 1);
  EXPECT_LE(lists, 4) << "one per reconcile, not one for each of eight pods";
}

TEST_F(Lifecycle, WhatWasReadOfOneCheckpointIsNotTakenForAnother) {
  Json model = model_named("m");
  model["spec"]["resources"]["memory"] = "64Mi";
  cluster.apply(model);
  ASSERT_TRUE(fake_operator.settle());
  ASSERT_EQ(cluster.reason("Planned"), "DoesNotFit");
  const auto inspections = [&] {
    return std::count_if(cluster.log.begin(), cluster.log.end(),
                         [](const std::string& line) { return line.starts_with("Create pods m-inspect"); });
  };
  EXPECT_EQ(inspections(), 1);
  cluster.edit([](Json& edited) { edited["spec"]["resources"]["memory"] = "65Mi"; });
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(inspections(), 1) << "the same checkpoint";
  cluster.edit([](Json& edited) { edited["spec"]["model"]["source"] = "pvc://models/another"; });
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(inspections(), 2);
}

TEST_F(Lifecycle, WhatEventsSaidOfAVolumeCountsForHalfAMinute) {
  fake_operator.cache = std::make_shared<ModelCache>();
  cluster.mount_failure = "MountVolume.SetUp failed for volume models: no such share";
  start();
  cluster.advance(std::chrono::seconds(20));
  ASSERT_TRUE(fake_operator.settle());
  const auto lists = [&] {
    return std::count_if(cluster.log.begin(), cluster.log.end(),
                         [](const std::string& line) { return line.starts_with("List"); });
  };
  ASSERT_EQ(lists(), 1);
  const int writes = cluster.writes;
  for (int second = 0; second < 20; ++second) fake_operator.reconcile(), cluster.tick();
  EXPECT_EQ(lists(), 1) << "reconciles for other reasons do not ask again";
  EXPECT_EQ(cluster.writes, writes);
  EXPECT_EQ(cluster.reason("Scheduled"), "VolumeNotMounted") << "nor do they forget";
  cluster.mount_failure = "another reason";
  cluster.advance(std::chrono::seconds(11));
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(lists(), 2);
  EXPECT_THAT(k8s::string_at(*cluster.condition("Ready"), "/message"), HasSubstr("another reason"));
  cluster.mount_failure.clear();
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
}

TEST_F(Lifecycle, EventsAreNotListedWhileOthersAre) {
  cluster.mount_failure = "MountVolume.SetUp failed for volume models: no such share";
  start();
  cluster.advance(std::chrono::seconds(20));
  for (const bool may : {false, true}) {
    Snapshot seen = cluster.snapshot();
    seen.may_list_events = may;
    const auto next = reconcile_step(ReconcileState{}, seen, std::nullopt, settings());
    const auto* call = std::get_if<Call>(&next);
    EXPECT_EQ(call && call->request.resource == k8s::events_resource, may);
    if (may) continue;
    ASSERT_TRUE(std::holds_alternative<Done>(next));
    EXPECT_LE(*std::get<Done>(next).requeue_after, std::chrono::seconds(10)) << "it asks when it may";
  }
}

TEST_F(Lifecycle, AForeignServiceOfOurNameIsAConflictAndIsLeftAlone) {
  cluster.put("services", {{"metadata", {{"name", "m"}, {"namespace", "ns"}}}, {"spec", {{"ports", Json::array()}}}});
  const Json theirs = *cluster.find("services", "m");
  start();
  EXPECT_EQ(cluster.reason("Stalled"), "NameConflict");
  EXPECT_EQ(cluster.reason("Ready"), "NameConflict");
  EXPECT_EQ(*cluster.find("services", "m"), theirs);
  EXPECT_EQ(cluster.find("pods", "m-0-0-1"), nullptr);
  ASSERT_TRUE(fake_operator.requeue.has_value());
  cluster.send({.verb = k8s::Verb::Delete,
                .resource = k8s::services_resource,
                .ns = "ns",
                .name = "m",
                .body = {{"preconditions", {{"uid", k8s::uid_of(theirs)}}}}});
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
}

TEST_F(Lifecycle, ANamesakeThatWasJustDeletedIsWaitedForAndNoConflict) {
  start();
  cluster.remove_model();
  cluster.apply(model_named("m"));
  cluster.collects = false;
  EXPECT_FALSE(fake_operator.settle(10)) << "tried again until the collector is done";
  EXPECT_NE(cluster.reason("Stalled"), "NameConflict");
  cluster.collects = true;
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
}

TEST_F(Lifecycle, AQuotaIsReportedAndTriedAgain) {
  cluster.refuse = [](const k8s::Request& request) -> std::optional<k8s::ApiError> {
    if (request.verb != k8s::Verb::Create || request.name.rfind("m-0", 0) != 0) return std::nullopt;
    return k8s::ApiError{k8s::Failure::Forbidden, 403, "Forbidden", "pods \"m-0-0-1\" is forbidden: exceeded quota: q",
                         0};
  };
  start();
  EXPECT_EQ(cluster.reason("Scheduled"), "QuotaExceeded");
  EXPECT_EQ(cluster.reason("Ready"), "QuotaExceeded");
  ASSERT_TRUE(fake_operator.requeue.has_value());
  cluster.refuse = nullptr;
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
}

TEST_F(Lifecycle, APodThatTheServerFailsToMakeForLongIsReported) {
  fake_operator.cache = std::make_shared<ModelCache>();
  const auto broken = [](const k8s::Request& request) -> std::optional<k8s::ApiError> {
    if (request.verb != k8s::Verb::Create || request.resource != k8s::pods_resource) return std::nullopt;
    return k8s::ApiError{k8s::Failure::Transient, 500, "InternalError", "failed calling webhook \"pods.example.com\"",
                         0};
  };
  cluster.refuse = broken;
  cluster.apply(model_named("m"));
  for (int second = 0; second < 9; ++second) {
    EXPECT_FALSE(fake_operator.reconcile()) << "it is retried soon without an Event, for it may recover in a moment";
    cluster.tick();
  }
  EXPECT_FALSE(cluster.condition("Scheduled"));
  for (int second = 0; second < 3; ++second) fake_operator.reconcile(), cluster.tick();
  EXPECT_EQ(cluster.reason("Scheduled"), "Unschedulable");
  EXPECT_THAT(k8s::string_at(*cluster.condition("Scheduled"), "/message"),
              HasSubstr("fails to make pod m-inspect-1: failed calling webhook"));
  EXPECT_EQ(fake_operator.requeue, std::chrono::seconds(30));
  const int writes = cluster.writes;
  EXPECT_TRUE(fake_operator.reconcile());
  EXPECT_EQ(cluster.writes, writes);
  cluster.refuse = nullptr;
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
  cluster.refuse = broken;
  cluster.end_worker("m-0-0-1", 5, words("RankLost"));
  fake_operator.reconcile();
  EXPECT_NE(cluster.reason("Scheduled"), "Unschedulable") << "the earlier failure is over, this one has begun just now";
}

TEST_F(Lifecycle, AStatusThatTheServerRefusesIsWrittenAgainWithoutItsLongParts) {
  cluster.refuse = [](const k8s::Request& request) -> std::optional<k8s::ApiError> {
    if (request.subresource != "status" || request.body.dump().find("\"ranks\":[") == std::string::npos)
      return std::nullopt;
    return k8s::ApiError{k8s::Failure::Invalid, 422, "Invalid", "status.replicaStatuses[0].ranks: Too many", 0};
  };
  start();
  EXPECT_TRUE(cluster.is_true("Ready"));
}

}  // namespace
}  // namespace pm::op::test
