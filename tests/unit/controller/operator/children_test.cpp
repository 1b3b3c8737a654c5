// SPDX-License-Identifier: Apache-2.0
// Tests Services and the PodDisruptionBudget when somebody else changes them, and nodes that must be read
// before a pod is created.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "controller/operator/api/names.h"
#include "controller/operator/api/object_text.h"
#include "tests/unit/controller/operator/simulator/simulation.h"

namespace pm::op::test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class Children : public testing::Test {
 protected:
  ~Children() override { EXPECT_THAT(cluster.violations, IsEmpty()); }
  void start(int replicas = 1) {
    cluster.apply(model_named("m", 2, replicas));
    settle();
  }
  /// Starts it with a PVC that pods of both nodes may mount.
  void add_second_node() {
    cluster.add_node("node-b", 8);
    cluster.put("persistentvolumeclaims", {{"metadata", {{"name", "models"}, {"namespace", "ns"}}},
                                           {"spec", {{"accessModes", {"ReadOnlyMany"}}}}});
  }
  void settle() { ASSERT_TRUE(fake_operator.settle()); }
  void edit(const char* pointer, const Json& value) {
    cluster.edit([&](Json& model) { model[Json::json_pointer(pointer)] = value; });
    settle();
  }
  void change(const char* plural, const char* name, const std::function<void(Json&)>& with) {
    Json object = *cluster.find(plural, name);
    with(object);
    cluster.put(plural, std::move(object), false);
    settle();
  }
  std::vector<std::string> log_since(size_t begin) const {
    return {cluster.log.begin() + static_cast<long>(begin), cluster.log.end()};
  }
  Json ports() const { return cluster.find("services", "m")->at("spec").at("ports"); }

  FakeCluster cluster;
  FakeOperator fake_operator{cluster};
};

TEST_F(Children, AChangedPortReplacesTheOneThatCreationMade) {
  start();
  const size_t begin = cluster.log.size();
  edit("/spec/service/port", 80);
  ASSERT_EQ(ports().size(), 1u);
  EXPECT_EQ(ports()[0]["port"], 80);
  EXPECT_THAT(log_since(begin), Contains("Get services m"));
  EXPECT_THAT(log_since(begin), Contains("Apply services m"));
  EXPECT_THAT(log_since(begin), Contains("MergePatch services m"))
      << "what was created is handed to later applies, once";
  const size_t second = cluster.log.size();
  edit("/spec/service/port", 90);
  ASSERT_EQ(ports().size(), 1u);
  EXPECT_THAT(log_since(second), Not(Contains("MergePatch services m")));
}

TEST_F(Children, WhatOthersAddedToAServiceStays) {
  start();
  change("services", "m", [](Json& service) {
    service["spec"]["ports"].push_back({{"name", "admin"}, {"port", 9000}, {"protocol", "TCP"}});
    service["spec"]["externalTrafficPolicy"] = "Local";
    service["metadata"]["annotations"]["lb"] = "x";
  });
  EXPECT_EQ(ports().size(), 2u);
  edit("/spec/service/port", 80);
  ASSERT_EQ(ports().size(), 2u);
  EXPECT_EQ(ports()[0]["name"], "admin");
  EXPECT_EQ(ports()[1]["port"], 80);
  const Json& service = *cluster.find("services", "m");
  EXPECT_EQ(service["spec"]["externalTrafficPolicy"], "Local");
  EXPECT_EQ(service["metadata"]["annotations"]["lb"], "x");
}

TEST_F(Children, AnnotationsOfTheServiceComeAndGoWithTheSpec) {
  start();
  edit("/spec/service/annotations", {{"cloud/lb", "x"}});
  EXPECT_EQ(cluster.find("services", "m")->at("metadata").at("annotations")["cloud/lb"], "x");
  const int writes = cluster.writes;
  settle();
  EXPECT_EQ(cluster.writes, writes);
  edit("/spec/service/annotations", Json::object());
  EXPECT_THAT(cluster.find("services", "m")->at("metadata").at("annotations"), IsEmpty());
}

TEST_F(Children, OurFieldsAreCorrectedWhenSomebodyChangesThem) {
  start(2);
  change("services", "m", [](Json& service) { service["spec"]["ports"][0]["targetPort"] = 1; });
  EXPECT_EQ(ports()[0]["targetPort"], "http");
  change("poddisruptionbudgets", "m", [](Json& budget) { budget["spec"]["minAvailable"] = 7; });
  EXPECT_EQ(cluster.find("poddisruptionbudgets", "m")->at("spec").at("minAvailable"), 2);
  change("services", "m", [](Json& service) { service["metadata"]["labels"].erase(label::role); });
  EXPECT_EQ(k8s::label_of(*cluster.find("services", "m"), label::role), "service");
}

TEST_F(Children, AnotherNumberInABudgetIsOneRequest) {
  start(2);
  const size_t begin = cluster.log.size();
  edit("/spec/replicas", 3);
  EXPECT_EQ(cluster.find("poddisruptionbudgets", "m")->at("spec").at("minAvailable"), 3);
  std::vector<std::string> of_the_budget;
  for (const std::string& line : log_since(begin)) {
    if (line.find("poddisruptionbudgets") != line.npos) of_the_budget.push_back(line);
  }
  EXPECT_THAT(of_the_budget, ElementsAre("MergePatch poddisruptionbudgets m"));
}

TEST_F(Children, AnotherBudgetOfTheNameIsNotChanged) {
  start(2);
  bool replaced = false;
  cluster.refuse = [&](const k8s::Request& request) -> std::optional<k8s::ApiError> {
    if (replaced || request.verb != k8s::Verb::MergePatch || request.resource != k8s::pod_disruption_budgets_resource)
      return std::nullopt;
    replaced = true;
    Json other = *cluster.find("poddisruptionbudgets", "m");
    other["metadata"].erase("ownerReferences");
    cluster.put("poddisruptionbudgets", std::move(other));
    return std::nullopt;
  };
  edit("/spec/replicas", 3);
  EXPECT_EQ(cluster.find("poddisruptionbudgets", "m")->at("spec").at("minAvailable"), 2);
  EXPECT_THAT(k8s::string_at(*cluster.condition("Stalled"), "/message"), HasSubstr("PodDisruptionBudget m exists"));
}

TEST_F(Children, ASomebodyWhoUndoesItAtOnceIsNotFoughtInTheSameReconcile) {
  start();
  cluster.edit([](Json& model) { model["spec"]["service"]["port"] = 80; });
  cluster.undoes = [](Json& object) {
    if (object.contains("spec") && object["spec"].contains("ports") && object["spec"]["ports"][0]["name"] == "http")
      object["spec"]["ports"][0]["port"] = 8000;
  };
  const int before = cluster.requests;
  for (int i = 0; i < 10; ++i) fake_operator.reconcile();
  EXPECT_LT(cluster.requests - before, 60);
}

TEST_F(Children, ABudgetThatSomebodyUndoesAtOnceIsCorrectedOnceInAReconcile) {
  start(2);
  cluster.edit([](Json& model) { model["spec"]["replicas"] = 3; });
  cluster.undoes = [](Json& object) {
    if (at(object, "/spec").contains("minAvailable")) object["spec"]["minAvailable"] = 7;
  };
  const int before = cluster.requests;
  for (int i = 0; i < 10; ++i) fake_operator.reconcile();
  EXPECT_LT(cluster.requests - before, 60);
}

TEST_F(Children, WithoutASurgeABudgetComesWithTheSecondReplicaAndGoesWithIt) {
  Json model = model_named("m");
  model["spec"]["update"] = {{"maxSurge", 0}};
  cluster.apply(model);
  settle();
  EXPECT_THAT(cluster.all("poddisruptionbudgets"), IsEmpty());
  edit("/spec/replicas", 2);
  ASSERT_TRUE(cluster.find("poddisruptionbudgets", "m"));
  EXPECT_EQ(cluster.find("poddisruptionbudgets", "m")->at("spec").at("minAvailable"), 1);
  const size_t begin = cluster.log.size();
  edit("/spec/replicas", 1);
  EXPECT_THAT(cluster.all("poddisruptionbudgets"), IsEmpty());
  const auto log = log_since(begin);
  EXPECT_EQ(std::count(log.begin(), log.end(), "Delete poddisruptionbudgets m"), 1);
  const int writes = cluster.writes;
  settle();
  EXPECT_EQ(cluster.writes, writes);
}

/// Ranks of a replica over two nodes resolve each other by this Service until the last pod of the replica is gone.
TEST_F(Children, TheServiceOfTheRanksStaysUntilTheLastReplicaThatAsksItIsGone) {
  add_second_node();
  cluster.drain_seconds = 3;
  Json model = model_named("m");
  model["spec"]["devices"]["perNode"] = 1;
  cluster.apply(model);
  settle();
  ASSERT_THAT(cluster.pod_names(), ElementsAre("m-0-0-1", "m-0-1-1"));
  ASSERT_TRUE(cluster.find("services", "m-ranks") && cluster.find("poddisruptionbudgets", "m"));
  int removed = 0;
  cluster.refuse = [&](const k8s::Request& request) -> std::optional<k8s::ApiError> {
    if (request.verb != k8s::Verb::Delete || request.resource != k8s::services_resource) return std::nullopt;
    ++removed;
    EXPECT_EQ(request.name, "m-ranks");
    EXPECT_THAT(cluster.pod_names(), ElementsAre("m-0-0-2")) << "what is left asks for no name";
    return std::nullopt;
  };
  edit("/spec/devices/perNode", 2);
  EXPECT_EQ(removed, 1);
  EXPECT_FALSE(cluster.find("services", "m-ranks"));
  EXPECT_EQ(cluster.find("poddisruptionbudgets", "m")->at("spec").at("minAvailable"), 1);
  EXPECT_EQ(ports().size(), 1u);
}

TEST_F(Children, ASomebodyElsesServiceOfTheRanksNameIsInTheWayOfReplicasOverNodesOnly) {
  cluster.put("services", {{"metadata", {{"name", "m-ranks"}, {"namespace", "ns"}}}, {"spec", Json::object()}});
  start();
  EXPECT_TRUE(cluster.is_true("Ready"));
  EXPECT_TRUE(cluster.find("services", "m-ranks")) << "it is not ours to remove";
  add_second_node();
  edit("/spec/devices/perNode", 1);
  EXPECT_EQ(cluster.reason("Stalled"), "NameConflict");
  EXPECT_THAT(k8s::string_at(*cluster.condition("Stalled"), "/message"), HasSubstr("m-ranks"));
}

TEST_F(Children, AStatusOfWhichTheServerDropsAFieldIsWrittenOnceInAReconcile) {
  cluster.undoes = [](Json& object) {
    if (at(object, "/status").contains("plan")) object["status"]["plan"].erase("reason");
  };
  start();
  const int before = cluster.requests;
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(fake_operator.reconcile());
  EXPECT_LT(cluster.requests - before, 60);
}

TEST_F(Children, AForeignPodOfTheNameOfTheInspectPodIsReportedAndLeftAlone) {
  cluster.put("pods", {{"metadata", {{"name", "m-inspect-1"}, {"namespace", "ns"}}}, {"spec", Json::object()}});
  cluster.apply(model_named("m"));
  EXPECT_TRUE(fake_operator.reconcile());
  EXPECT_EQ(cluster.reason("Stalled"), "NameConflict");
  EXPECT_LT(cluster.requests, 30);
}

TEST_F(Children, AServiceThatWasExchangedIsNotTouchedButAConflict) {
  start();
  bool exchanged = false;
  cluster.refuse = [&](const k8s::Request& request) -> std::optional<k8s::ApiError> {
    if (exchanged || request.verb != k8s::Verb::Get || request.resource != k8s::services_resource) return std::nullopt;
    exchanged = true;  // somebody creates it again between the view of the store and the read
    cluster.put("services", {{"metadata", {{"name", "m"}, {"namespace", "ns"}}}, {"spec", {{"ports", Json::array()}}}});
    return std::nullopt;
  };
  cluster.edit([](Json& model) { model["spec"]["service"]["port"] = 80; });
  settle();
  EXPECT_EQ(cluster.reason("Stalled"), "NameConflict");
  EXPECT_TRUE(ports().empty());
}

/// A node that a stale store shows as lost may be back while its kubelet still ends the old pod. A new pod would make
/// two live generations.
TEST(Fence, ANodeIsLookedAtBeforeAPodIsMadeInPlaceOfOneThatNobodySawEnd) {
  for (const bool back : {true, false}) {
    Simulation simulation(back ? InjectedFault{.kind = InjectedFault::Kind::Hold, .plural = "nodes", .at = 2}
                               : InjectedFault{});  // the third event of nodes is delayed
    FakeCluster& cluster = simulation.cluster;
    cluster.logs = true;
    cluster.add_node("node-b", 8);
    cluster.devices = 0;
    cluster.apply(model_named("m"));
    ASSERT_EQ(simulation.settle(), Simulation::End::Rest);
    ASSERT_EQ(k8s::string_at(*cluster.find("pods", "m-0-0-1"), "/spec/nodeName"), "node-b");
    cluster.devices = 8;
    cluster.drain_seconds = 2;
    cluster.set_node_ready("node-b", false);
    ASSERT_EQ(simulation.settle(), Simulation::End::Rest);
    if (back) cluster.set_node_ready("node-b", true);
    cluster.delete_pod("m-0-0-1");
    cluster.log.clear();
    EXPECT_EQ(simulation.settle(), Simulation::End::Rest);
    EXPECT_THAT(cluster.log, Contains("Get nodes node-b"));
    EXPECT_THAT(cluster.violations, IsEmpty()) << (back ? "the node is back" : "the node is dead");
    EXPECT_EQ(cluster.reason("Ready"), "Serving");
  }
}

}  // namespace
}  // namespace pm::op::test
