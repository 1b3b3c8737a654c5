// SPDX-License-Identifier: Apache-2.0
// Tests a user's policy in a ConfigMap that comes late, is invalid, changes or is deleted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/operator/api/names.h"
#include "controller/operator/api/object_text.h"
#include "tests/unit/controller/operator/simulator/fake_operator.h"

namespace pm::op::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Json model_with_policy(const std::string& map = "mine", int replicas = 1) {
  Json model = model_named("m", 2, replicas);
  model["spec"]["model"]["policyRef"] = {{"name", map}};
  return model;
}

class UserPolicy : public testing::Test {
 protected:
  UserPolicy() {
    cluster.validate_policy = [](const std::string& policy) -> std::optional<Json> {
      if (policy.find("wrong") == std::string::npos) return std::nullopt;
      return Json{{"reason", "UnsupportedPolicy"}, {"message", "/policy/story.yaml:3: no tensor matches wrong.{l}"}};
    };
  }
  ~UserPolicy() override { EXPECT_THAT(cluster.violations, IsEmpty()); }
  void start(int replicas = 1) {
    cluster.apply(model_with_policy("mine", replicas));
    ASSERT_TRUE(fake_operator.settle());
  }
  void write(const std::string& text) { cluster.put_map("mine", {{"story.yaml", text}}); }
  std::string message(const char* condition) const { return k8s::string_at(*cluster.condition(condition), "/message"); }
  std::vector<Json> copies() const { return cluster.with_role("configmaps", "policy"); }
  std::vector<Json> workers() const { return cluster.with_role("pods", "worker"); }

  FakeCluster cluster;
  FakeOperator fake_operator{cluster};
};

TEST_F(UserPolicy, IsReadByInspectionAndByEveryRank) {
  write("model_type: story");
  start(2);
  EXPECT_TRUE(cluster.is_true("Ready"));
  ASSERT_EQ(copies().size(), 1u);
  EXPECT_EQ(copies()[0]["data"]["story.yaml"], "model_type: story");
  ASSERT_EQ(workers().size(), 2u);
  for (const Json& pod : workers()) EXPECT_EQ(cluster.policy_of(pod), "model_type: story");
  EXPECT_EQ(cluster.model()["status"]["plan"]["policy"], k8s::key_of(copies()[0]).name + "/story.yaml");
}

TEST_F(UserPolicy, ThatIsMissingIsNamedAndWaitedFor) {
  start();
  EXPECT_EQ(cluster.reason("Planned"), "PolicyNotFound");
  EXPECT_EQ(cluster.reason("Ready"), "PolicyNotFound");
  EXPECT_THAT(message("Ready"), HasSubstr("ConfigMap mine of spec.model.policyRef is not in namespace ns"));
  EXPECT_FALSE(cluster.is_true("Stalled")) << "it may still come";
  EXPECT_THAT(cluster.pod_names(), IsEmpty());
  ASSERT_TRUE(fake_operator.requeue.has_value());
  EXPECT_LE(*fake_operator.requeue, std::chrono::seconds(10));
  write("model_type: story");
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
}

TEST_F(UserPolicy, ThatMayNotBeReadIsReported) {
  cluster.refuse = [](const k8s::Request& request) -> std::optional<k8s::ApiError> {
    if (request.verb != k8s::Verb::Get) return std::nullopt;
    return k8s::ApiError{k8s::Failure::Forbidden, 403, "Forbidden", "configmaps \"mine\" is forbidden", 0};
  };
  start();
  EXPECT_EQ(cluster.reason("Planned"), "PolicyNotFound");
  EXPECT_THAT(message("Planned"), HasSubstr("configmaps \"mine\" is forbidden"));
}

TEST_F(UserPolicy, ThatIsWrongIsRefusedWithItsLineAndTriedAgainOnceItChanges) {
  write("wrong");
  start();
  EXPECT_EQ(cluster.reason("Planned"), "UnsupportedPolicy");
  EXPECT_EQ(message("Planned"), "ConfigMap mine: /policy/story.yaml:3: no tensor matches wrong.{l}");
  EXPECT_TRUE(cluster.is_true("Stalled"));
  write("model_type: story");
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
  EXPECT_EQ(copies().size(), 1u) << "the copy of the wrong one is gone";
}

TEST_F(UserPolicy, ThatIsCorrectedTimeAndAgainLeavesOneCopy) {
  for (int i = 0; i < 4; ++i) {
    write("wrong " + std::to_string(i));
    start();
    EXPECT_EQ(cluster.reason("Planned"), "UnsupportedPolicy");
    EXPECT_EQ(copies().size(), 1u);
  }
}

TEST_F(UserPolicy, ThatChangesLeadsToANewInspectionAndNewPods) {
  write("model_type: story");
  start(2);
  const std::string plan = k8s::string_at(cluster.model(), "/status/plan/planHash");
  cluster.log.clear();
  write("model_type: story # better");
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_THAT(cluster.log, testing::Contains("Create pods m-inspect-1"));
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-2", "m-1-0-2"));
  for (const Json& pod : workers()) EXPECT_EQ(cluster.policy_of(pod), "model_type: story # better");
  EXPECT_EQ(copies().size(), 1u);
  EXPECT_NE(k8s::string_at(cluster.model(), "/status/plan/planHash"), plan);
  EXPECT_EQ(cluster.with_role("configmaps", "plan").size(), 1u);
}

TEST_F(UserPolicy, ThatTurnsWrongLeavesTheReplicasServing) {
  write("model_type: story");
  start();
  write("wrong");
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(cluster.reason("Planned"), "UnsupportedPolicy");
  EXPECT_TRUE(cluster.is_true("Ready"));
  EXPECT_THAT(cluster.pod_names(), testing::Contains("m-0-0-1"));
  for (const Json& pod : workers())
    EXPECT_EQ(cluster.policy_of(pod), "model_type: story") << "what it was planned with";
}

TEST_F(UserPolicy, ThatGoesTakesNothingWithIt) {
  write("model_type: story");
  start();
  cluster.remove_map("mine");
  cluster.end_worker("m-0-0-1", 5, {{"rank", 0}, {"reason", "RankLost"}, {"message", "gone"}});
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-2")) << "made again, from the copy";
  EXPECT_TRUE(cluster.is_true("Ready") && cluster.is_true("Planned"));
  EXPECT_THAT(message("Planned"), HasSubstr("ConfigMap mine of spec.model.policyRef is not in namespace ns"));
  EXPECT_THAT(message("Planned"), HasSubstr("stays in use"));
}

TEST_F(UserPolicy, OfAnotherNameWithTheSameContentsChangesNothing) {
  write("model_type: story");
  start();
  cluster.put_map("other", {{"story.yaml", "model_type: story"}, {"more", "x"}});
  cluster.log.clear();
  cluster.edit([](Json& model) { model["spec"]["model"]["policyRef"] = {{"name", "other"}, {"key", "story.yaml"}}; });
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-1"));
  EXPECT_THAT(cluster.log, Not(testing::Contains(HasSubstr("inspect"))));
}

TEST_F(UserPolicy, IsLeftWhenTheSpecNoLongerNamesIt) {
  write("model_type: story");
  start();
  cluster.edit([](Json& model) { model["spec"]["model"].erase("policyRef"); });
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
  EXPECT_THAT(copies(), IsEmpty());
  ASSERT_EQ(workers().size(), 1u);
  EXPECT_EQ(cluster.policy_of(workers()[0]), "");
  cluster.log.clear();
  EXPECT_TRUE(fake_operator.reconcile());
  EXPECT_THAT(cluster.log, IsEmpty()) << "nothing to look at any more";
}

TEST_F(UserPolicy, WhoseCopyIsDeletedIsCopiedAgain) {
  write("model_type: story");
  start();
  cluster.remove_map(k8s::key_of(copies()[0]).name);
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(copies().size(), 1u);
  EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-1"));
}

TEST_F(UserPolicy, IsAskedForOnceAReconcileAndNeverWritten) {
  write("model_type: story");
  start();
  const Json theirs = *cluster.find("configmaps", "mine");
  const int writes = cluster.writes;
  cluster.log.clear();
  EXPECT_TRUE(fake_operator.reconcile());
  EXPECT_THAT(cluster.log, ElementsAre("Get configmaps mine"));
  ASSERT_TRUE(fake_operator.requeue.has_value());
  EXPECT_EQ(cluster.writes, writes);
  EXPECT_EQ(*cluster.find("configmaps", "mine"), theirs);
}

TEST_F(UserPolicy, ThatCannotBeAskedForJustNowIsAskedForAgain) {
  write("model_type: story");
  bool down = true;
  cluster.refuse = [&](const k8s::Request& request) -> std::optional<k8s::ApiError> {
    if (request.verb != k8s::Verb::Get || !down) return std::nullopt;
    return k8s::ApiError{k8s::Failure::Transient, 503, "", "etcd is away", 0};
  };
  cluster.apply(model_with_policy());
  EXPECT_FALSE(fake_operator.reconcile()) << "the queue tries it again";
  EXPECT_THAT(cluster.pod_names(), IsEmpty());
  down = false;
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
}

}  // namespace
}  // namespace pm::op::test
