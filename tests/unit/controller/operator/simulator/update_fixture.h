// A ParallelModel that serves and is then edited, and what can be seen of it meanwhile.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/core/conditions.h"
#include "controller/operator/group.h"
#include "controller/operator/names.h"
#include "controller/operator/text.h"
#include "fake_operator.h"

namespace pm::op::test {

class Update : public testing::Test {
 protected:
  ~Update() override { EXPECT_THAT(cluster.violations, testing::IsEmpty()); }
  void start(int replicas = 1) {
    cluster.apply(model_named("m", 2, replicas));
    ASSERT_TRUE(brain.settle());
  }
  void edit(const Json& update = Json::object()) {
    cluster.edit([&](Json& model) {
      model["spec"]["worker"]["env"] = Json::array({{{"name", "A"}, {"value", "1"}}});
      model["spec"]["update"] = update;
    });
  }
  /// Replicas that serve, and an update whose first pod ends.
  void start_and_block(int replicas) {
    start(replicas);
    cluster.broken_image = "broken";
    cluster.edit([](Json& model) {
      model["spec"]["worker"]["image"] = "broken";
      model["spec"]["failure"]["maxRestarts"] = 0;
    });
    brain.settle(20);   // it waits for the new group
    cluster.end_worker("m-0-0-2", 2, "usage: no such flag");
    ASSERT_TRUE(brain.settle());
  }
  /// Its pods never get ready.
  void edit_badly() {
    cluster.broken_image = "broken";
    cluster.edit([](Json& model) { model["spec"]["worker"]["image"] = "broken"; });
    for (int i = 0; i < 5; ++i) second();
  }
  void take_back() {
    cluster.edit([](Json& model) { model["spec"]["worker"].erase("image"); });
  }
  /// Pods that a Service would send requests to, by group.
  std::map<std::string, int> serving() const {
    std::map<std::string, int> out;
    for (const Json& pod : cluster.with_role("pods", "worker")) {
      if (k8s::condition_is_true(at(pod, "/status/conditions"), "Ready") && !k8s::being_deleted(pod)) ++out[k8s::label_of(pod, label::group)];
    }
    return out;
  }
  /// Incarnations that are neither ended nor being deleted, by group.
  std::map<std::string, std::set<std::string>> incarnations() const {
    std::map<std::string, std::set<std::string>> out;
    for (const Json& pod : cluster.with_role("pods", "worker")) {
      if (!k8s::being_deleted(pod)) out[k8s::label_of(pod, label::group)].insert(k8s::label_of(pod, label::incarnation));
    }
    return out;
  }
  std::string message(const char* type) const { return k8s::string_at(*cluster.condition(type), "/message"); }
  Json group(int index = 0) const { return at(cluster.model(), "/status/groups/" + std::to_string(index)); }
  bool told(const std::string& reason) const {
    return std::any_of(brain.events.begin(), brain.events.end(), [&](const Event& event) { return event.reason == reason; });
  }
  /// Half of a group of two nodes finds room.
  void start_half() {
    cluster.devices = 1;
    cluster.put("persistentvolumeclaims", {{"metadata", {{"name", "models"}, {"namespace", "ns"}}}, {"spec", {{"accessModes", {"ReadWriteMany"}}}}});
    Json model = model_named("m");
    model["spec"]["devices"]["perNode"] = 1;
    cluster.apply(model);
    ASSERT_TRUE(brain.settle());
  }
  void second() { brain.pass(), cluster.tick(); }

  FakeCluster cluster;
  Operator brain{cluster};
};

}  // namespace pm::op::test
