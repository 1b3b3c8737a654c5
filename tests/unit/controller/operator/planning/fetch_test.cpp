// SPDX-License-Identifier: Apache-2.0
// Tests a model on the hub: it is planned from metadata read over the network, fetched to a PVC, and only then served.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/core/conditions.h"
#include "controller/operator/api/names.h"
#include "controller/operator/api/object_text.h"
#include "controller/operator/planning/fetching.h"
#include "tests/unit/controller/operator/simulator/fake_operator.h"

namespace pm::op::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const std::string commit_a(40, 'a'), commit_b(40, 'b');

Json hub_model(const Json& more = Json::object(), int replicas = 1) {
  Json model = model_named("m", 2, replicas);
  model["spec"]["model"] = {{"source", "hf://org/name"}};
  model["spec"]["model"].update(more);
  return model;
}

class Fetch : public testing::Test {
 protected:
  Fetch() { cluster.metadata["revision"] = commit_a; }
  ~Fetch() override { EXPECT_THAT(cluster.violations, IsEmpty()); }
  void start(const Json& model = hub_model()) {
    cluster.apply(model);
    ASSERT_TRUE(fake_operator.settle());
  }
  /// Runs reconciles and seconds without waiting for the idle state.
  void go(int seconds) {
    for (int i = 0; i < seconds; ++i) fake_operator.reconcile(), cluster.tick();
    fake_operator.reconcile();
  }
  std::string message(const char* type) const { return k8s::string_at(*cluster.condition(type), "/message"); }
  std::vector<std::string> args(const std::string& pod) const {
    return cluster.find("pods", pod)->at("spec")["containers"][0]["args"].get<std::vector<std::string>>();
  }
  static Json volume(const Json& pod, const std::string& name) {
    for (const Json& one : pod["spec"]["volumes"])
      if (one["name"] == name) return one;
    return nullptr;
  }
  static Json seen(const Json& pod, const std::string& name) {
    for (const Json& one : pod["spec"]["containers"][0]["volumeMounts"])
      if (one["name"] == name) return one;
    return nullptr;
  }

  FakeCluster cluster;
  FakeOperator fake_operator{cluster};
};

TEST_F(Fetch, TheClaimIsMadeAndFilledBeforeAnyDeviceIsTaken) {
  cluster.fetches_end = false;
  cluster.apply(hub_model());
  go(6);
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-fetch"));
  EXPECT_TRUE(cluster.is_true("Planned"));
  for (const char* type : {"Scheduled", "ModelLoaded", "Ready"}) {
    EXPECT_FALSE(cluster.is_true(type));
    EXPECT_EQ(cluster.reason(type), "Fetching");
  }
  EXPECT_TRUE(cluster.is_true("Reconciling"));
  EXPECT_FALSE(cluster.is_true("Stalled"));
  EXPECT_EQ(cluster.model()["status"]["plan"]["revision"], commit_a);
  const Json& claim = *cluster.find("persistentvolumeclaims", "m-cache");
  EXPECT_EQ(claim["spec"]["accessModes"], Json::array({"ReadWriteOnce"}));
  EXPECT_FALSE(claim["spec"].contains("storageClassName"));
  EXPECT_FALSE(claim["metadata"].contains("ownerReferences")) << "retained unless asked otherwise";

  const Json& pod = *cluster.find("pods", "m-fetch");
  EXPECT_FALSE(pod["spec"]["containers"][0]["resources"]["limits"].contains("nvidia.com/gpu"));
  EXPECT_EQ(volume(pod, "model")["persistentVolumeClaim"], (Json{{"claimName", "m-cache"}, {"readOnly", false}}));
  EXPECT_THAT(args("m-fetch"),
              testing::IsSupersetOf({"fetch", "hf://org/name", "--revision", commit_a.c_str(), "--cache", "/model"}));
  EXPECT_EQ(pod["spec"]["securityContext"]["fsGroup"], 65532);

  cluster.fetches_end = true;
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-1"));
  EXPECT_TRUE(cluster.is_true("Ready"));
  const Json& worker = *cluster.find("pods", "m-0-0-1");
  EXPECT_THAT(args("m-0-0-1"), testing::Contains("/model/models--org--name/snapshots/" + commit_a));
  EXPECT_EQ(volume(worker, "model")["persistentVolumeClaim"], (Json{{"claimName", "m-cache"}, {"readOnly", true}}));
  EXPECT_EQ(seen(worker, "model")["readOnly"], true);
  EXPECT_TRUE(volume(worker, "hub-token").is_null());
}

TEST_F(Fetch, WhatHasComeIsShownWhileItComes) {
  cluster.fetches_end = false;
  cluster.probes["m-fetch"] = {{"state", "Fetching"},
                               {"fetchedBytes", int64_t{3} << 29},
                               {"totalBytes", int64_t{3} << 30},
                               {"bytesPerSecond", 100 << 20}};
  cluster.apply(hub_model());
  go(8);
  EXPECT_EQ(message("ModelLoaded"), "1.5 GiB of 3.0 GiB, 100.0 MiB/s, 16 s left");
  cluster.probes["m-fetch"]["lastError"] = {{"reason", "SourceUnreachable"}, {"message", "https://hub answers 503"}};
  go(1);
  EXPECT_EQ(cluster.reason("ModelLoaded"), "SourceUnreachable");
  EXPECT_THAT(message("ModelLoaded"),
              AllOf(HasSubstr("1.5 GiB of 3.0 GiB"), HasSubstr("answers 503"), HasSubstr("tried again")));
  EXPECT_TRUE(cluster.is_true("Planned"));
  cluster.probes["m-fetch"] = {
      {"state", "Waiting"}, {"fetchedBytes", 0}, {"totalBytes", 7}, {"waitsFor", "other-fetch:1 (org/name)"}};
  go(1);
  EXPECT_THAT(message("Ready"), HasSubstr("waits for the download of other-fetch:1 (org/name)"));
  ASSERT_TRUE(fake_operator.requeue.has_value());
  EXPECT_LE(*fake_operator.requeue, std::chrono::seconds(2));
}

TEST_F(Fetch, HostileAnswersOfThePodAreHarmless) {
  for (const char* text :
       {"[]", "1", "{\"state\":1}", "{\"state\":\"Fetching\",\"fetchedBytes\":-5,\"totalBytes\":1e300}",
        "{\"state\":\"Fetching\",\"totalBytes\":9223372036854775807,\"lastError\":{\"reason\":\"\\n "
        "x\",\"message\":[]}}"}) {
    const auto progress = fetch_progress(Json::parse(text));
    EXPECT_THAT(progress.value_or(Wait{}).reason, Not(HasSubstr(" "))) << text;
  }
}

TEST_F(Fetch, AConvergedModelCausesNoRequestAndALostFetchPodIsNotMissed) {
  start();
  const int before = cluster.requests;
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(fake_operator.reconcile());
    cluster.advance(std::chrono::hours(1));
  }
  EXPECT_EQ(cluster.requests, before);
  cluster.end_worker("m-0-0-1", 5, {{"reason", "RankLost"}, {"message", "x"}});
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-2")) << "nothing is fetched again for a restart";
}

TEST_F(Fetch, AnotherRevisionIsFetchedWhileThePreviousServes) {
  start();
  cluster.metadata["revision"] = commit_b;
  cluster.fetches_end = false;
  cluster.edit([](Json& model) { model["spec"]["model"]["revision"] = "v2"; });
  go(8);
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-1", "m-fetch"));
  EXPECT_TRUE(cluster.is_true("Ready"));
  EXPECT_TRUE(cluster.is_true("ModelLoaded"));
  EXPECT_TRUE(cluster.is_true("Reconciling"));
  EXPECT_THAT(message("Ready"), HasSubstr("by the previous plan; the current one: Fetching"));
  cluster.fetches_end = true;
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(cluster.model()["status"]["plan"]["revision"], commit_b);
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-2"));
}

TEST_F(Fetch, AnotherPlanOfTheSameBytesFetchesNothing) {
  start();
  const auto fetches = [&] { return std::count(cluster.log.begin(), cluster.log.end(), "Create pods m-fetch"); };
  EXPECT_EQ(fetches(), 1);
  cluster.edit([](Json& model) { model["spec"]["devices"]["count"] = 4; });
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
  EXPECT_EQ(fetches(), 1);
  cluster.edit([](Json& model) { model["metadata"]["annotations"][annotation::restarted_at] = "now"; });
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(fetches(), 2) << "a restart by hand looks at the hub again";
}

TEST_F(Fetch, AFailedFetchSaysWhyAndIsMadeAgainAfterAPause) {
  for (const auto& [reason, pause] : {std::pair{"SourceUnreachable", 30},
                                      {"AuthFailed", 300},
                                      {"ChecksumMismatch", 1800},
                                      {"InsufficientStorage", 300}}) {
    SCOPED_TRACE(reason);
    FakeCluster cluster;
    FakeOperator fake_operator{cluster};
    cluster.metadata["revision"] = commit_a;
    cluster.fetch_failure = Json{{"reason", reason}, {"message", "needs 3.0 GiB, 1.0 GiB are free"}};
    cluster.apply(hub_model());
    ASSERT_TRUE(fake_operator.settle());
    EXPECT_TRUE(cluster.is_true("Planned"));
    EXPECT_EQ(cluster.reason("ModelLoaded"), reason);
    EXPECT_EQ(cluster.reason("Ready"), reason);
    EXPECT_THAT(k8s::string_at(*cluster.condition("Ready"), "/message"), HasSubstr("needs 3.0 GiB, 1.0 GiB are free"));
    EXPECT_TRUE(std::any_of(fake_operator.events.begin(), fake_operator.events.end(),
                            [&](const Event& event) { return event.reason == reason && event.warning; }));
    ASSERT_TRUE(fake_operator.requeue.has_value());
    EXPECT_LE(*fake_operator.requeue, std::chrono::seconds(pause));
    EXPECT_GT(*fake_operator.requeue, std::chrono::seconds(pause - 10));
    const int writes = cluster.writes;
    ASSERT_TRUE(fake_operator.settle());
    EXPECT_EQ(cluster.writes, writes) << "it waits";
    cluster.fetch_failure.reset();
    cluster.advance(std::chrono::seconds(pause));
    ASSERT_TRUE(fake_operator.settle());
    EXPECT_TRUE(cluster.is_true("Ready"));
  }
}

TEST_F(Fetch, WhatInspectionMeetsOnTheHubIsReported) {
  for (const char* reason : {"SourceUnreachable", "RevisionNotFound", "AuthFailed"}) {
    FakeCluster cluster;
    FakeOperator fake_operator{cluster};
    cluster.inspect_failure = Json{{"reason", reason}, {"message", "https://hub answers 404"}};
    cluster.apply(hub_model());
    ASSERT_TRUE(fake_operator.settle());
    EXPECT_EQ(cluster.reason("Planned"), reason);
    EXPECT_FALSE(cluster.find("persistentvolumeclaims", "m-cache")) << "no claim for a model that cannot be planned";
  }
}

TEST_F(Fetch, TheTokenIsMountedWhereTheHubIsAskedAndNowhereElse) {
  cluster.fetches_end = false;
  cluster.apply(hub_model({{"tokenSecretRef", {{"name", "hf"}, {"key", "k"}}}}));
  fake_operator.reconcile();
  for (const char* name : {"m-inspect-1", "m-fetch"}) {
    if (std::string(name) == "m-fetch") go(8);
    ASSERT_TRUE(cluster.find("pods", name)) << name;
    const Json& pod = *cluster.find("pods", name);
    EXPECT_EQ(volume(pod, "hub-token")["secret"]["secretName"], "hf");
    EXPECT_EQ(volume(pod, "hub-token")["secret"]["items"], Json::array({{{"key", "k"}, {"path", "token"}}}));
    EXPECT_THAT(args(name), testing::IsSupersetOf({"--token-file", "/etc/parallelmodel-hub/token"}));
  }
  cluster.fetches_end = true;
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(volume(*cluster.find("pods", "m-0-0-1"), "hub-token").is_null());
}

TEST_F(Fetch, AClaimOfTheUserIsLookedForFirstAndNeverOwned) {
  const Json model = hub_model({{"cache", {{"claimName", "shared"}}}});
  cluster.apply(model);
  go(3);
  EXPECT_EQ(cluster.reason("Planned"), "ClaimNotFound");
  EXPECT_THAT(message("Planned"), HasSubstr("PersistentVolumeClaim shared"));
  EXPECT_THAT(cluster.pod_names(), IsEmpty());
  cluster.put("persistentvolumeclaims",
              {{"metadata", {{"name", "shared"}, {"namespace", "ns"}}}, {"spec", {{"accessModes", {"ReadOnlyMany"}}}}});
  cluster.advance(std::chrono::seconds(30));
  go(6);
  EXPECT_TRUE(cluster.is_true("Planned"));
  EXPECT_EQ(cluster.reason("Ready"), "ClaimNotShareable") << "nobody can write to it";
  cluster.put("persistentvolumeclaims", {{"metadata", {{"name", "shared"}, {"namespace", "ns"}}},
                                         {"spec", {{"accessModes", {"ReadWriteMany"}}}}});
  cluster.advance(std::chrono::seconds(30));
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
  EXPECT_EQ(cluster.all("persistentvolumeclaims").size(), 1u);
  EXPECT_FALSE(cluster.find("pods", "m-0-0-1")->at("spec")["securityContext"].contains("fsGroup"))
      << "its files are not ours to give to a replica";
}

TEST_F(Fetch, AClaimIsMadeAsAskedAndGoesOrStays) {
  for (const bool retain : {true, false}) {
    FakeCluster cluster;
    FakeOperator fake_operator{cluster};
    cluster.metadata["revision"] = commit_a;
    cluster.apply(hub_model({{"cache", {{"size", "20Gi"}, {"storageClassName", "fast"}, {"retain", retain}}}}, 2));
    ASSERT_TRUE(fake_operator.settle());
    const Json spec = cluster.find("persistentvolumeclaims", "m-cache")->at("spec");
    EXPECT_EQ(spec["resources"]["requests"]["storage"], "20Gi");
    EXPECT_EQ(spec["storageClassName"], "fast");
    EXPECT_EQ(spec["accessModes"], Json::array({"ReadWriteMany"})) << "two replicas may be on two nodes";
    cluster.remove_model();
    for (int i = 0; i < 3; ++i) cluster.tick();
    EXPECT_EQ(cluster.find("persistentvolumeclaims", "m-cache") != nullptr, retain);
    cluster.apply(hub_model({{"cache", {{"retain", retain}}}}));
    ASSERT_TRUE(fake_operator.settle());
    EXPECT_TRUE(cluster.is_true("Ready")) << "a new ParallelModel of this name finds the checkpoint again";
  }
}

TEST_F(Fetch, AStrangersClaimOfOurNameIsLeftAlone) {
  cluster.put("persistentvolumeclaims", {{"metadata", {{"name", "m-cache"}, {"namespace", "ns"}}},
                                         {"spec", {{"accessModes", {"ReadWriteMany"}}}}});
  cluster.apply(hub_model());
  go(8);
  EXPECT_EQ(cluster.reason("Ready"), "NameConflict");
  EXPECT_THAT(message("Ready"), HasSubstr("spec.model.cache.claimName"));
  EXPECT_THAT(cluster.pod_names(), Not(testing::Contains("m-fetch")));
}

TEST_F(Fetch, AFetchPodOnANodeThatIsGoneIsMadeAgainElsewhere) {
  cluster.add_node("node-b", 8);
  cluster.fetches_end = false;
  cluster.apply(hub_model());
  go(8);
  ASSERT_EQ(k8s::string_at(*cluster.find("pods", "m-fetch"), "/spec/nodeName"), "node-a");
  cluster.set_node_ready("node-a", false);
  go(4);
  EXPECT_EQ(k8s::string_at(*cluster.find("pods", "m-fetch"), "/spec/nodeName"), "node-a")
      << "a node that is not ready may be ready again: nobody gave the pod up yet";
  cluster.delete_pod("m-fetch");  // as the eviction from a dead node does: no kubelet confirms the end
  go(4);
  EXPECT_EQ(k8s::string_at(*cluster.find("pods", "m-fetch"), "/spec/nodeName"), "node-b");
  cluster.fetches_end = true;
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
}

TEST_F(Fetch, ASecretThatIsMissingIsNamed) {
  cluster.mount_failure = "MountVolume.SetUp failed for volume \"hub-token\": secret \"hf\" not found";
  cluster.apply(hub_model({{"tokenSecretRef", {{"name", "hf"}}}}));
  go(25);
  EXPECT_EQ(cluster.reason("Scheduled"), "VolumeNotMounted");
  EXPECT_THAT(message("Scheduled"), HasSubstr("secret \"hf\" not found"));
}

}  // namespace
}  // namespace pm::op::test
