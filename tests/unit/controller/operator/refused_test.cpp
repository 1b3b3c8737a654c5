// What a cluster, or its API server, refuses or has not got: told with its reason, and tried again.
#include "controller/core/conditions.h"
#include "controller/operator/names.h"
#include "life.h"

namespace pm::op::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(Life, AModelThatDoesNotFitGetsNumbersAndNoPod) {
  auto model = model_named("m");
  model["spec"]["resources"]["memory"] = "64Mi";
  cluster.apply(model);
  ASSERT_TRUE(brain.settle());
  EXPECT_EQ(cluster.reason("Planned"), "DoesNotFit");
  EXPECT_EQ(cluster.reason("Ready"), "DoesNotFit");
  EXPECT_TRUE(cluster.is_true("Stalled"));
  EXPECT_THAT(k8s::string_at(*cluster.condition("Planned"), "/message"), HasSubstr("32.0 MiB per device"));
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-inspect-1")) << "the home of the facts";
  EXPECT_EQ(cluster.find("services", "m"), nullptr);
  cluster.edit([](Json& model) { model["spec"]["resources"]["memory"] = "4Gi"; });
  ASSERT_TRUE(brain.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
}

TEST_F(Life, AnEditThatDoesNotFitLeavesTheLastGoodPlanServing) {
  start();
  cluster.edit([](Json& model) { model["spec"]["resources"]["memory"] = "64Mi"; });
  ASSERT_TRUE(brain.settle());
  EXPECT_EQ(cluster.reason("Planned"), "DoesNotFit");
  EXPECT_TRUE(cluster.is_true("Ready"));
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-1"));
  cluster.end_worker("m-0-0-1", 5, words("RankLost"));
  ASSERT_TRUE(brain.settle());
  EXPECT_FALSE(cluster.is_true("Ready"));
}

TEST_F(Life, AnUnreadableCheckpointIsNamedAndTriedAgainLater) {
  cluster.inspect_failure = Json{{"reason", "ModelUnreadable"}, {"message", "model.safetensors: tensor h.0.attn ends after the file"}};
  start();
  EXPECT_EQ(cluster.reason("Planned"), "ModelUnreadable");
  EXPECT_TRUE(cluster.is_true("Stalled"));
  EXPECT_THAT(k8s::string_at(*cluster.condition("Ready"), "/message"), HasSubstr("h.0.attn"));
  ASSERT_TRUE(brain.requeue.has_value());
  cluster.inspect_failure.reset();
  cluster.advance(std::chrono::minutes(6));
  ASSERT_TRUE(brain.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
}

TEST_F(Life, HostileFactsAreRefusedWithoutHarm) {
  for (const Json& words : {Json("[[[["), Json::array(), Json{{"model_type", 7}}, Json("\xF0\x9F\x98\x80 {"), Json(std::string(4096, '{')),
                            Json{{"reason", std::string(3000, 'x')}, {"message", 5}}}) {
    FakeCluster other;
    other.facts = words;
    Operator mind{other};
    other.apply(model_named("m"));
    ASSERT_TRUE(mind.settle());
    EXPECT_EQ(other.reason("Planned"), "InspectFailed") << words.dump();
  }
}

TEST_F(Life, AMissingClaimIsNamedAndWaitedFor) {
  cluster.claim_exists = false;
  start();
  EXPECT_EQ(cluster.reason("Planned"), "ClaimNotFound");
  EXPECT_FALSE(cluster.is_true("Stalled"));
  cluster.claim_exists = true;
  ASSERT_TRUE(brain.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
}

TEST_F(Life, TooFewDevicesAreCounted) {
  cluster.devices = 1;
  start();
  EXPECT_TRUE(cluster.is_true("Planned")) << "missing nodes are no reason against a plan";
  EXPECT_EQ(cluster.reason("Scheduled"), "InsufficientDevices");
  EXPECT_EQ(cluster.reason("Ready"), "InsufficientDevices");
  EXPECT_THAT(k8s::string_at(*cluster.condition("Scheduled"), "/message"), HasSubstr("needs 2 nvidia.com/gpu on one node, free"));
  cluster.devices = 2;
  ASSERT_TRUE(brain.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
}

TEST_F(Life, AVolumeThatDoesNotComeIsNamedByWhatEventsSay) {
  cluster.mount_failure = "MountVolume.SetUp failed for volume models: no such share";
  start();
  EXPECT_EQ(cluster.reason("Scheduled"), "Inspecting") << "for a while that is normal";
  EXPECT_THAT(cluster.log, testing::Not(testing::Contains(HasSubstr("List"))));
  cluster.advance(std::chrono::seconds(20));
  ASSERT_TRUE(brain.settle());
  EXPECT_EQ(cluster.reason("Scheduled"), "VolumeNotMounted");
  EXPECT_EQ(cluster.reason("Ready"), "VolumeNotMounted");
  EXPECT_THAT(k8s::string_at(*cluster.condition("Ready"), "/message"), HasSubstr("no such share"));
  cluster.mount_failure.clear();
  ASSERT_TRUE(brain.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
}

TEST_F(Life, OfManyPodsThatWaitForAVolumeOneIsAskedAbout) {
  start();
  cluster.mount_failure = "MountVolume.SetUp failed for volume models: no such share";
  cluster.edit([](Json& model) { model["spec"]["replicas"] = 9; });
  ASSERT_TRUE(brain.settle());
  cluster.log.clear();
  cluster.advance(std::chrono::seconds(20));
  ASSERT_TRUE(brain.settle());
  EXPECT_EQ(cluster.reason("Scheduled"), "VolumeNotMounted");
  const auto lists = std::count_if(cluster.log.begin(), cluster.log.end(), [](const std::string& line) { return line.starts_with("List"); });
  EXPECT_GE(lists, 1);
  EXPECT_LE(lists, 4) << "one in each pass, not one for each of eight pods";
}

TEST_F(Life, WhatWasReadOfOneCheckpointIsNotTakenForAnother) {
  Json model = model_named("m");
  model["spec"]["resources"]["memory"] = "64Mi";
  cluster.apply(model);
  ASSERT_TRUE(brain.settle());
  ASSERT_EQ(cluster.reason("Planned"), "DoesNotFit");
  const auto inspections = [&] {
    return std::count_if(cluster.log.begin(), cluster.log.end(), [](const std::string& line) { return line.starts_with("Create pods m-inspect"); });
  };
  EXPECT_EQ(inspections(), 1);
  cluster.edit([](Json& edited) { edited["spec"]["resources"]["memory"] = "65Mi"; });
  ASSERT_TRUE(brain.settle());
  EXPECT_EQ(inspections(), 1) << "the same checkpoint";
  cluster.edit([](Json& edited) { edited["spec"]["model"]["source"] = "pvc://models/another"; });
  ASSERT_TRUE(brain.settle());
  EXPECT_EQ(inspections(), 2);
}

TEST_F(Life, WhatEventsSaidOfAVolumeCountsForHalfAMinute) {
  brain.memo = std::make_shared<Memo>();
  cluster.mount_failure = "MountVolume.SetUp failed for volume models: no such share";
  start();
  cluster.advance(std::chrono::seconds(20));
  ASSERT_TRUE(brain.settle());
  const auto lists = [&] { return std::count_if(cluster.log.begin(), cluster.log.end(), [](const std::string& line) { return line.starts_with("List"); }); };
  ASSERT_EQ(lists(), 1);
  const int writes = cluster.writes;
  for (int second = 0; second < 20; ++second) brain.pass(), cluster.tick();
  EXPECT_EQ(lists(), 1) << "passes for other reasons do not ask again";
  EXPECT_EQ(cluster.writes, writes);
  EXPECT_EQ(cluster.reason("Scheduled"), "VolumeNotMounted") << "nor do they forget";
  cluster.mount_failure = "another reason";
  cluster.advance(std::chrono::seconds(11));
  ASSERT_TRUE(brain.settle());
  EXPECT_EQ(lists(), 2);
  EXPECT_THAT(k8s::string_at(*cluster.condition("Ready"), "/message"), HasSubstr("another reason"));
  cluster.mount_failure.clear();
  ASSERT_TRUE(brain.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
}

TEST_F(Life, EventsAreNotListedWhileOthersAre) {
  cluster.mount_failure = "MountVolume.SetUp failed for volume models: no such share";
  start();
  cluster.advance(std::chrono::seconds(20));
  for (const bool may : {false, true}) {
    Snapshot seen = cluster.snapshot();
    seen.may_list_events = may;
    const auto next = step(State{}, seen, std::nullopt, settings());
    const auto* call = std::get_if<Call>(&next);
    EXPECT_EQ(call && call->request.resource == k8s::Events, may);
    if (may) continue;
    ASSERT_TRUE(std::holds_alternative<Done>(next));
    EXPECT_LE(*std::get<Done>(next).requeue_after, std::chrono::seconds(10)) << "it asks when it may";
  }
}

TEST_F(Life, AForeignServiceOfOurNameIsAConflictAndIsLeftAlone) {
  cluster.put("services", {{"metadata", {{"name", "m"}, {"namespace", "ns"}}}, {"spec", {{"ports", Json::array()}}}});
  const Json theirs = *cluster.find("services", "m");
  start();
  EXPECT_EQ(cluster.reason("Stalled"), "NameConflict");
  EXPECT_EQ(cluster.reason("Ready"), "NameConflict");
  EXPECT_EQ(*cluster.find("services", "m"), theirs);
  EXPECT_EQ(cluster.find("pods", "m-0-0-1"), nullptr);
  ASSERT_TRUE(brain.requeue.has_value());
  cluster.send({.verb = k8s::Verb::Delete, .resource = k8s::Services, .ns = "ns", .name = "m", .body = {{"preconditions", {{"uid", k8s::uid_of(theirs)}}}}});
  ASSERT_TRUE(brain.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
}

TEST_F(Life, ANamesakeThatWasJustDeletedIsWaitedForAndNoConflict) {
  start();
  cluster.remove_model();
  cluster.apply(model_named("m"));
  cluster.collects = false;
  EXPECT_FALSE(brain.settle(10)) << "tried again until the collector is done";
  EXPECT_NE(cluster.reason("Stalled"), "NameConflict");
  cluster.collects = true;
  ASSERT_TRUE(brain.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
}

TEST_F(Life, AQuotaIsReportedAndTriedAgain) {
  cluster.refuse = [](const k8s::Request& request) -> std::optional<k8s::ApiError> {
    if (request.verb != k8s::Verb::Create || request.name.rfind("m-0", 0) != 0) return std::nullopt;
    return k8s::ApiError{k8s::Failure::Forbidden, 403, "Forbidden", "pods \"m-0-0-1\" is forbidden: exceeded quota: q", 0};
  };
  start();
  EXPECT_EQ(cluster.reason("Scheduled"), "QuotaExceeded");
  EXPECT_EQ(cluster.reason("Ready"), "QuotaExceeded");
  ASSERT_TRUE(brain.requeue.has_value());
  cluster.refuse = nullptr;
  ASSERT_TRUE(brain.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
}

TEST_F(Life, APodThatTheServerFailsToMakeForLongIsTold) {
  brain.memo = std::make_shared<Memo>();
  const auto broken = [](const k8s::Request& request) -> std::optional<k8s::ApiError> {
    if (request.verb != k8s::Verb::Create || request.resource != k8s::Pods) return std::nullopt;
    return k8s::ApiError{k8s::Failure::Transient, 500, "InternalError", "failed calling webhook \"pods.example.com\"", 0};
  };
  cluster.refuse = broken;
  cluster.apply(model_named("m"));
  for (int second = 0; second < 9; ++second) {
    EXPECT_FALSE(brain.pass()) << "tried again soon, and nobody is told: it may be over in a moment";
    cluster.tick();
  }
  EXPECT_FALSE(cluster.condition("Scheduled"));
  for (int second = 0; second < 3; ++second) brain.pass(), cluster.tick();
  EXPECT_EQ(cluster.reason("Scheduled"), "Unschedulable");
  EXPECT_THAT(k8s::string_at(*cluster.condition("Scheduled"), "/message"), HasSubstr("fails to make pod m-inspect-1: failed calling webhook"));
  EXPECT_EQ(brain.requeue, std::chrono::seconds(30));
  const int writes = cluster.writes;
  EXPECT_TRUE(brain.pass());
  EXPECT_EQ(cluster.writes, writes);
  cluster.refuse = nullptr;
  ASSERT_TRUE(brain.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
  cluster.refuse = broken;
  cluster.end_worker("m-0-0-1", 5, words("RankLost"));
  brain.pass();
  EXPECT_NE(cluster.reason("Scheduled"), "Unschedulable") << "the earlier trouble is over, this one has begun just now";
}

TEST_F(Life, AStatusThatTheServerRefusesIsWrittenAgainWithoutItsLongParts) {
  cluster.refuse = [](const k8s::Request& request) -> std::optional<k8s::ApiError> {
    if (request.subresource != "status" || request.body.dump().find("\"ranks\":[") == std::string::npos) return std::nullopt;
    return k8s::ApiError{k8s::Failure::Invalid, 422, "Invalid", "status.groups[0].ranks: Too many", 0};
  };
  start();
  EXPECT_TRUE(cluster.is_true("Ready"));
}

}  // namespace
}  // namespace pm::op::test
