// SPDX-License-Identifier: Apache-2.0
// Tests replicas that Kubernetes' scheduler places as a PodGroup: all of their pods or none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "controller/operator/api/names.h"
#include "controller/operator/api/object_text.h"
#include "tests/unit/controller/operator/simulator/simulation.h"

namespace pm::op::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class PodGroups : public testing::Test {
 protected:
  ~PodGroups() override { EXPECT_THAT(cluster.violations, IsEmpty()); }
  /// Creates a ParallelModel over two nodes of a device each.
  void start(int replicas = 1, int per_node = 1) {
    cluster.put("persistentvolumeclaims", {{"metadata", {{"name", "models"}, {"namespace", "ns"}}},
                                           {"spec", {{"accessModes", {"ReadOnlyMany"}}}}});
    Json model = model_named("m", 2, replicas);
    model["spec"]["devices"]["perNode"] = per_node;
    model["spec"]["scheduling"]["podGroup"] = true;
    cluster.apply(model);
    ASSERT_TRUE(fake_operator.settle());
  }
  size_t bound(const std::string& prefix) const {
    return std::ranges::count_if(cluster.pod_names(), [&](const std::string& name) {
      return name.starts_with(prefix) && cluster.find("pods", name)->at("spec").contains("nodeName");
    });
  }
  std::string scheduled_message() const { return k8s::string_at(*cluster.condition("Scheduled"), "/message"); }
  size_t logged(const std::string& line) const { return std::ranges::count(cluster.log, line); }

  FakeCluster cluster;
  FakeOperator fake_operator{cluster};
};

TEST_F(PodGroups, ThePodsOwnTheirGroupWhichIsMadeAfterThem) {
  cluster.pod_group_versions = {"v1alpha2"};
  start();
  EXPECT_TRUE(cluster.is_true("Ready"));
  const Json* group = cluster.find("podgroups", "m-0-1");
  ASSERT_TRUE(group);
  EXPECT_EQ((*group)["apiVersion"], "scheduling.k8s.io/v1alpha2");
  EXPECT_EQ((*group)["spec"], (Json{{"schedulingPolicy", {{"gang", {{"minCount", 2}}}}}}));
  EXPECT_EQ((*group)["metadata"]["labels"][label::name], "m");
  const Json& owners = (*group)["metadata"]["ownerReferences"];
  ASSERT_EQ(owners.size(), 2u);
  for (const Json& owner : owners) {
    const Json& pod = *cluster.find("pods", owner["name"]);
    EXPECT_EQ(owner["uid"], k8s::uid_of(pod));
    EXPECT_EQ(pod["spec"]["schedulingGroup"], (Json{{"podGroupName", "m-0-1"}}));
  }
  const auto at_line = [&](const char* line) { return std::ranges::find(cluster.log, line); };
  EXPECT_LT(at_line("Create pods m-0-1-1"), at_line("Create podgroups m-0-1"));
  EXPECT_EQ(logged("Create podgroups m-0-1"), 1u);
  cluster.log.clear();
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(logged("Get podgroups m-0-1"), 0u) << "nothing is read once all pods have a node";
}

TEST_F(PodGroups, TheNewestVersionThatTheServerHasIsTaken) {
  cluster.pod_group_versions = {"v1alpha2", "v1beta1"};
  start();
  EXPECT_EQ(cluster.find("podgroups", "m-0-1")->at("apiVersion"), "scheduling.k8s.io/v1beta1");
}

TEST_F(PodGroups, DevicesForOneAndAHalfReplicasServeOneAndHoldNoPodOfTheOther) {
  cluster.pod_group_versions = {"v1beta1"};
  cluster.show_devices(2);
  cluster.devices = 2;
  cluster.add_node("node-b", 1);
  start(2);
  EXPECT_EQ(bound("m-0-"), 2u);
  EXPECT_EQ(bound("m-1-"), 0u);
  EXPECT_THAT(scheduled_message(), HasSubstr("pod group is unschedulable"));
  cluster.add_node("node-c", 1);
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(cluster.model()["status"]["readyReplicas"], 2);
  EXPECT_THAT(cluster.log, Not(testing::Contains("Delete pods m-1-0-1"))) << "no half replica gave devices back";
}

TEST_F(PodGroups, ADeviceOfAnotherGenerationGetsAGroupOfItsOwn) {
  cluster.pod_group_versions = {"v1beta1"};
  start();
  cluster.end_worker("m-0-0-1", 5, {{"rank", 0}, {"reason", "RankLost"}, {"message", "gone"}});
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
  EXPECT_TRUE(cluster.find("podgroups", "m-0-2"));
  EXPECT_FALSE(cluster.find("podgroups", "m-0-1")) << "it goes with its pods";
}

TEST_F(PodGroups, AClusterWithoutThemPlacesPodsOneByOne) {
  start();
  EXPECT_TRUE(cluster.is_true("Ready"));
  EXPECT_THAT(cluster.all("podgroups"), IsEmpty());
  EXPECT_EQ(logged("Get podgroups m-0-1"), 0u) << "the API server dropped the field of the pods";
}

TEST_F(PodGroups, WithoutTheRightToThemTheStatusNamesTheChartValueUntilItIsGranted) {
  cluster.pod_group_versions = {"v1beta1"};
  cluster.refuse = [](const k8s::Request& request) -> std::optional<k8s::ApiError> {
    if (request.resource.kind != "PodGroup") return std::nullopt;
    return k8s::ApiError{k8s::Failure::Forbidden, 403, "Forbidden", "podgroups is forbidden", 0};
  };
  start();
  EXPECT_EQ(bound("m-"), 0u);
  EXPECT_THAT(scheduled_message(), HasSubstr("waits for PodGroup m-0-1"));
  EXPECT_THAT(scheduled_message(), HasSubstr("podGroups.enabled=true"));
  ASSERT_TRUE(fake_operator.requeue);
  const int writes = cluster.writes;
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(cluster.writes, writes);
  cluster.refuse = nullptr;
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
}

TEST_F(PodGroups, AnApiThatHasOnlyPodsInGroupsSaysWhatIsMissing) {
  cluster.pod_group_versions = {"v3"};
  start();
  EXPECT_EQ(bound("m-"), 0u);
  EXPECT_THAT(scheduled_message(), HasSubstr("feature gates GenericWorkload and GangScheduling"));
}

TEST_F(PodGroups, AStrangersGroupOfTheNameIsToldUntilItIsGone) {
  cluster.pod_group_versions = {"v1beta1"};
  cluster.collects = false;
  Json theirs{{"metadata", {{"name", "m-0-1"}, {"namespace", "ns"}}},
              {"spec", {{"schedulingPolicy", {{"gang", {{"minCount", 9}}}}}}}};
  cluster.put("podgroups", theirs);
  start();
  EXPECT_EQ(bound("m-"), 0u);
  EXPECT_THAT(scheduled_message(), HasSubstr("PodGroup m-0-1: it exists and belongs to none of these pods"));
  theirs["metadata"]["deletionTimestamp"] = k8s::format_time(cluster.now());
  cluster.put("podgroups", theirs, false);
  EXPECT_FALSE(fake_operator.reconcile()) << "it goes soon, and is looked at again at once";
  cluster.collects = true;
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
  EXPECT_EQ(cluster.find("podgroups", "m-0-1")->at("metadata").at("ownerReferences").size(), 2u);
}

TEST_F(PodGroups, AReplicaOnOneNodeNeedsNone) {
  cluster.pod_group_versions = {"v1beta1"};
  start(1, 2);
  EXPECT_TRUE(cluster.is_true("Ready"));
  EXPECT_THAT(cluster.all("podgroups"), IsEmpty());
  EXPECT_FALSE(cluster.find("pods", "m-0-0-1")->at("spec").contains("schedulingGroup"));
}

}  // namespace
}  // namespace pm::op::test
