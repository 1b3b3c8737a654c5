// SPDX-License-Identifier: Apache-2.0
// The fixture of tests of a serving ParallelModel that is edited.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/core/conditions.h"
#include "controller/operator/api/names.h"
#include "controller/operator/api/object_text.h"
#include "controller/operator/replicas/replica_planner.h"
#include "fake_operator.h"

namespace pm::op::test {

class Update : public testing::Test {
 protected:
  ~Update() override { EXPECT_THAT(cluster.violations, testing::IsEmpty()); }
  void start(int replicas = 1) {
    cluster.apply(model_named("m", 2, replicas));
    ASSERT_TRUE(fake_operator.settle());
  }
  void edit(const Json& update = Json::object()) {
    cluster.edit([&](Json& model) {
      model["spec"]["worker"]["env"] = Json::array({{{"name", "A"}, {"value", "1"}}});
      model["spec"]["update"] = update;
    });
  }
  /// Starts replicas, then an update whose first pod fails.
  void start_and_block(int replicas) {
    start(replicas);
    cluster.broken_image = "broken";
    cluster.edit([](Json& model) {
      model["spec"]["worker"]["image"] = "broken";
      model["spec"]["failure"]["maxRestarts"] = 0;
    });
    fake_operator.settle(20);  // it waits for the new replica
    cluster.end_worker("m-0-0-2", 2, "usage: no such flag");
    ASSERT_TRUE(fake_operator.settle());
  }
  /// Makes an edit whose pods never become ready.
  void edit_badly() {
    cluster.broken_image = "broken";
    cluster.edit([](Json& model) { model["spec"]["worker"]["image"] = "broken"; });
    for (int i = 0; i < 5; ++i) second();
  }
  void take_back() {
    cluster.edit([](Json& model) { model["spec"]["worker"].erase("image"); });
  }
  /// Counts the pods that a Service would route to, by replica.
  std::map<std::string, int> serving() const {
    std::map<std::string, int> out;
    for (const Json& pod : cluster.with_role("pods", "worker")) {
      if (k8s::condition_is_true(at(pod, "/status/conditions"), "Ready") && !k8s::being_deleted(pod))
        ++out[k8s::label_of(pod, label::replica)];
    }
    return out;
  }
  /// Returns the generations that are not being deleted, by replica.
  std::map<std::string, std::set<std::string>> live_generations() const {
    std::map<std::string, std::set<std::string>> out;
    for (const Json& pod : cluster.with_role("pods", "worker")) {
      if (!k8s::being_deleted(pod))
        out[k8s::label_of(pod, label::replica)].insert(k8s::label_of(pod, label::replica_generation));
    }
    return out;
  }
  std::string message(const char* type) const { return k8s::string_at(*cluster.condition(type), "/message"); }
  Json replica(int index = 0) const { return at(cluster.model(), "/status/replicaStatuses/" + std::to_string(index)); }
  bool has_event(const std::string& reason) const {
    return std::any_of(fake_operator.events.begin(), fake_operator.events.end(),
                       [&](const Event& event) { return event.reason == reason; });
  }
  /// Starts a replica of two nodes of which only one finds a node.
  void start_half() {
    cluster.devices = 1;
    cluster.put("persistentvolumeclaims", {{"metadata", {{"name", "models"}, {"namespace", "ns"}}},
                                           {"spec", {{"accessModes", {"ReadWriteMany"}}}}});
    Json model = model_named("m");
    model["spec"]["devices"]["perNode"] = 1;
    cluster.apply(model);
    ASSERT_TRUE(fake_operator.settle());
  }
  void second() { fake_operator.reconcile(), cluster.tick(); }

  FakeCluster cluster;
  FakeOperator fake_operator{cluster};
};

}  // namespace pm::op::test
