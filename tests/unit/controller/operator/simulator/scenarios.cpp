// SPDX-License-Identifier: Apache-2.0
#include "scenarios.h"

#include <gtest/gtest.h>

#include "controller/operator/api/names.h"

namespace pm::op::test {

namespace {

void apply(FakeCluster& cluster, const Settle& settle, int replicas = 1) {
  cluster.apply(model_named("m", 2, replicas));
  settle();
}

void fail(FakeCluster& cluster, int replica) {
  for (const std::string& name : cluster.pod_names()) {
    if (name.rfind("m-" + std::to_string(replica) + "-0-", 0) == 0)
      return cluster.end_worker(name, 5, {{"rank", 0}, {"reason", "RankLost"}, {"message", "gone"}});
  }
  FAIL() << "replica " << replica << " has no pod";
}

/// Two replicas serve, and the pods of their update never become ready.
void apply_and_block(FakeCluster& cluster, const Settle& settle) {
  apply(cluster, settle, 2);
  cluster.broken_image = "broken";
  cluster.edit([](Json& model) {
    model["spec"]["worker"]["image"] = "broken";
    model["spec"]["failure"] = {{"maxRestarts", 1}, {"startSeconds", 20}};
  });
  settle();
  EXPECT_EQ(cluster.reason("Stalled"), "RolloutBlocked");
}

/// Creates a ParallelModel whose replicas have one rank on each of two nodes. `devices` are those of node-b; 0 means no
/// node-b.
void two_nodes(FakeCluster& cluster, int devices = 4) {
  if (devices) cluster.add_node("node-b", devices);
  cluster.put("persistentvolumeclaims",
              {{"metadata", {{"name", "models"}, {"namespace", "ns"}}}, {"spec", {{"accessModes", {"ReadOnlyMany"}}}}});
  Json model = model_named("m");
  model["spec"]["devices"]["perNode"] = 1;
  cluster.apply(model);
}

}  // namespace

const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> all{
      {.name = "create", .play = [](FakeCluster& c, const Settle& settle) { apply(c, settle, 2); }},
      {.name = "failures and back-off",
       .play =
           [](FakeCluster& c, const Settle& settle) {
             apply(c, settle);
             for (int i = 0; i < 3; ++i) fail(c, 0), settle();
           },
       .counts = true},
      {.name = "budget spent, then restarted by hand",
       .play =
           [](FakeCluster& c, const Settle& settle) {
             apply(c, settle);
             c.edit([](Json& model) { model["spec"]["failure"]["maxRestarts"] = 1; });
             settle();
             fail(c, 0), settle();
             fail(c, 0), settle();
             EXPECT_EQ(c.reason("Stalled"), "RestartBudgetExhausted");
             c.edit([](Json& model) { model["metadata"]["annotations"][annotation::restarted_at] = "1"; });
             settle();
           },
       .counts = true},
      {.name = "scale 1 -> 2 -> 1",
       .play =
           [](FakeCluster& c, const Settle& settle) {
             apply(c, settle);
             for (int replicas : {2, 1}) {
               c.edit([&](Json& model) { model["spec"]["replicas"] = replicas; });
               settle();
             }
           }},
      {.name = "edit of the pods",
       .play =
           [](FakeCluster& c, const Settle& settle) {
             apply(c, settle, 2);
             c.edit(
                 [](Json& model) { model["spec"]["worker"]["env"] = Json::array({{{"name", "A"}, {"value", "1"}}}); });
             settle();
           }},
      {.name = "edit of the plan, and of the Service",
       .play =
           [](FakeCluster& c, const Settle& settle) {
             apply(c, settle);
             c.edit([](Json& model) {
               model["spec"]["devices"]["count"] = 4;
               model["spec"]["service"]["port"] = 80;
             });
             settle();
           }},
      {.name = "edit that changes the constraints and not the plan",
       .play =
           [](FakeCluster& c, const Settle& settle) {
             apply(c, settle);
             c.edit([](Json& model) { model["spec"]["resources"]["memory"] = "4096Mi"; });
             settle();
           }},
      {.name = "refused, then corrected",
       .play =
           [](FakeCluster& c, const Settle& settle) {
             auto model = model_named("m");
             model["spec"]["resources"]["memory"] = "64Mi";
             c.apply(model);
             settle();
             EXPECT_EQ(c.reason("Planned"), "DoesNotFit");
             c.edit([](Json& model) { model["spec"]["resources"]["memory"] = "2Gi"; });
             settle();
           }},
      {.name = "name conflict, then corrected",
       .play =
           [](FakeCluster& c, const Settle& settle) {
             c.put("services", {{"metadata", {{"name", "m"}, {"namespace", "ns"}}}, {"spec", Json::object()}});
             apply(c, settle);
             EXPECT_EQ(c.reason("Stalled"), "NameConflict");
             c.send({.verb = k8s::Verb::Delete,
                     .resource = k8s::services_resource,
                     .ns = "ns",
                     .name = "m",
                     .body = {{"preconditions", {{"uid", c.find("services", "m")->at("metadata").at("uid")}}}}});
             settle();
           },
       .learns = true},
      {.name = "a user's policy: missing, there, changed, gone, and no longer named",
       .play =
           [](FakeCluster& c, const Settle& settle) {
             auto model = model_named("m");
             model["spec"]["model"]["policyRef"] = {{"name", "mine"}};
             c.apply(model);
             settle();
             EXPECT_EQ(c.reason("Planned"), "PolicyNotFound");
             for (const char* text : {"one", "two"}) c.put_map("mine", {{"p.yaml", text}}), settle();
             c.remove_map("mine");
             fail(c, 0), settle();
             EXPECT_TRUE(c.is_true("Ready"));
             c.edit([](Json& m) { m["spec"]["model"].erase("policyRef"); });
             settle();
           },
       .learns = true,
       .counts = true},
      {.name = "a model on the hub, another revision of it, and the hub gone for a while",
       .play =
           [](FakeCluster& c, const Settle& settle) {
             c.metadata["revision"] = std::string(40, 'a');
             auto model = model_named("m");
             model["spec"]["model"] = {{"source", "hf://org/name"}, {"cache", {{"retain", false}}}};
             c.apply(model);
             settle();
             EXPECT_TRUE(c.is_true("Ready"));
             c.metadata["revision"] = std::string(40, 'b');
             c.edit([](Json& m) { m["spec"]["model"]["revision"] = "v2"; });
             settle();
             c.fetch_failure = Json{{"reason", "SourceUnreachable"}, {"message", "gone"}};
             c.metadata["revision"] = std::string(40, 'c');
             c.edit([](Json& m) { m["spec"]["model"]["revision"] = "v3"; });
             settle();
             c.fetch_failure.reset();
             c.advance(std::chrono::seconds(60));
             settle();
             EXPECT_EQ(c.model()["status"]["plan"]["revision"], std::string(40, 'c'));
           },
       .learns = true,
       .counts = true},
      {.name = "a surge, an edit in the middle of it, and the way back",
       .play =
           [](FakeCluster& c, const Settle& settle) {
             c.drain_seconds = 3;
             apply(c, settle, 2);
             for (const char* value : {"1", "2"}) {
               c.edit([&](Json& model) {
                 model["spec"]["worker"]["env"] = Json::array({{{"name", "A"}, {"value", value}}});
               });
             }
             settle();
             c.edit([](Json& model) { model["spec"]["worker"].erase("env"); });
             settle();
           }},
      {.name = "an update without room",
       .play =
           [](FakeCluster& c, const Settle& settle) {
             c.devices = 4;
             apply(c, settle, 2);
             c.edit(
                 [](Json& model) { model["spec"]["worker"]["env"] = Json::array({{{"name", "A"}, {"value", "1"}}}); });
             settle();
           }},
      {.name = "an update that never starts, and its repair",
       .play =
           [](FakeCluster& c, const Settle& settle) {
             apply_and_block(c, settle);
             EXPECT_EQ(c.model()["status"]["readyReplicas"], 2);
             c.edit([](Json& model) { model["spec"]["worker"]["image"] = "good"; });
             settle();
           },
       .counts = true},
      {.name = "an update that never starts is reverted, and what served all along fails",
       .play =
           [](FakeCluster& c, const Settle& settle) {
             c.drain_seconds = 3;
             apply_and_block(c, settle);
             c.edit([](Json& model) {
               model["spec"]["worker"].erase("image");
               model["spec"].erase("failure");
             });
             settle();
             EXPECT_TRUE(c.is_true("Ready"));
             fail(c, 0), settle();
           },
       .counts = true},
      {.name = "replicas over two nodes, one lost",
       .play =
           [](FakeCluster& c, const Settle& settle) {
             c.devices = 1;
             two_nodes(c);
             settle();
             c.devices = 8;
             c.set_node_ready("node-b", false);
             for (const std::string& name : c.pod_names()) {
               if (k8s::string_at(*c.find("pods", name), "/spec/nodeName") == "node-b") c.delete_pod(name);
             }
             settle();
             EXPECT_EQ(c.reason("Ready"), "Serving");
             c.set_node_ready("node-b", true);
             settle();
           },
       .learns = true},
      {.name = "half of a replica finds room, and is released",
       .play =
           [](FakeCluster& c, const Settle& settle) {
             c.devices = 1;
             two_nodes(c, 0);
             settle();
             c.advance(std::chrono::seconds(301));
             settle();
             EXPECT_EQ(c.model()["status"]["replicaStatuses"][0]["waits"], 1);
             c.add_node("node-b", 1);
             settle();
           },
       .learns = true,
       .counts = true},
      {.name = "an update of a replica over two nodes, and a rank of it that ends",
       .play =
           [](FakeCluster& c, const Settle& settle) {
             c.devices = 1;
             two_nodes(c);
             settle();
             c.edit(
                 [](Json& model) { model["spec"]["worker"]["env"] = Json::array({{{"name", "A"}, {"value", "1"}}}); });
             settle();
             fail(c, 0), settle();
             EXPECT_TRUE(c.is_true("Ready"));
           },
       .learns = true},
      {.name = "replicas over two nodes, then on one, and over two again",
       .play =
           [](FakeCluster& c, const Settle& settle) {
             c.drain_seconds = 3;
             two_nodes(c);
             settle();
             for (const int per_node : {2, 1}) {
               c.edit([&](Json& model) { model["spec"]["devices"]["perNode"] = per_node; });
               settle();
               EXPECT_TRUE(c.is_true("Ready"));
               EXPECT_EQ(c.find("services", "m-ranks") != nullptr, per_node == 1);
             }
           },
       .learns = true},
      {.name = "an update in place, and an old replica that dies in it",
       .play =
           [](FakeCluster& c, const Settle& settle) {
             Json model = model_named("m", 2, 3);
             model["spec"]["update"] = {{"maxSurge", 0}, {"maxUnavailable", 1}};
             c.apply(model);
             settle();
             c.edit([](Json& m) { m["spec"]["worker"]["env"] = Json::array({{{"name", "A"}, {"value", "1"}}}); });
             fail(c, 2);
             settle();
           }},
      {.name = "scaled to nothing in the middle of an update, and back",
       .play =
           [](FakeCluster& c, const Settle& settle) {
             c.drain_seconds = 3;
             apply(c, settle, 2);
             c.edit(
                 [](Json& model) { model["spec"]["worker"]["env"] = Json::array({{{"name", "A"}, {"value", "1"}}}); });
             c.edit([](Json& model) { model["spec"]["replicas"] = 0; });
             settle();
             EXPECT_EQ(c.reason("Ready"), "ScaledToZero");
             c.edit([](Json& model) { model["spec"]["replicas"] = 2; });
             settle();
           }},
      {.name = "a download whose pod is deleted, whose node is lost, and that ends",
       .play =
           [](FakeCluster& c, const Settle& settle) {
             c.add_node("node-b", 8);
             c.metadata["revision"] = std::string(40, 'a');
             c.fetches_end = false;
             auto model = model_named("m");
             model["spec"]["model"] = {{"source", "hf://org/name"}};
             c.apply(model);
             settle();
             EXPECT_EQ(c.reason("Ready"), "Fetching");
             c.delete_pod("m-fetch");
             settle();
             c.set_node_ready("node-a", false);
             c.delete_pod("m-fetch");
             settle();
             c.fetches_end = true;
             settle();
             EXPECT_TRUE(c.is_true("Ready"));
             c.set_node_ready("node-a", true);
             settle();
           },
       .learns = true},
      {.name = "cordoned nodes with room and without, and evictions",
       .play =
           [](FakeCluster& c, const Settle& settle) {
             c.drain_seconds = 3;
             apply(c, settle);
             c.add_node("node-b", 2);
             c.cordon("node-a");
             settle();
             EXPECT_TRUE(c.is_true("Ready"));
             c.cordon("node-b");
             settle();
             c.advance(std::chrono::seconds(60));
             settle();
             EXPECT_TRUE(c.all("poddisruptionbudgets").empty()) << "no room: a drain may go on";
             for (const std::string& name : c.pod_names()) {
               if (k8s::string_at(*c.find("pods", name), "/spec/nodeName") == "node-b") c.evict(name);
             }
             settle();
             c.cordon("node-a", false);
             settle();
             EXPECT_TRUE(c.is_true("Ready"));
             EXPECT_EQ(c.model()["status"]["replicaStatuses"][0]["restarts"], 0);
           },
       .learns = true,
       .counts = true},
      {.name = "a quota that refuses pods for a while",
       .play =
           [](FakeCluster& c, const Settle& settle) {
             apply(c, settle);
             c.refuse = [](const k8s::Request& request) -> std::optional<k8s::ApiError> {
               if (request.verb != k8s::Verb::Create || request.resource != k8s::pods_resource) return std::nullopt;
               return k8s::ApiError{k8s::Failure::Forbidden, 403, "Forbidden",
                                    "pods \"p\" is forbidden: exceeded quota: devices", 0};
             };
             c.edit([](Json& model) { model["spec"]["replicas"] = 2; });
             settle();
             EXPECT_EQ(c.reason("Scheduled"), "QuotaExceeded");
             c.refuse = nullptr;
             c.advance(std::chrono::seconds(30));
             settle();
             EXPECT_EQ(c.model()["status"]["readyReplicas"], 2);
           },
       .learns = true,
       .counts = true},
      {.name = "optional children, wanted and then not",
       .play =
           [](FakeCluster& c, const Settle& settle) {
             c.serves_optional = true;
             apply(c, settle);
             for (const bool wanted : {true, false}) {
               c.edit([&](Json& model) {
                 model["spec"]["metrics"]["podMonitor"] = wanted;
                 model["spec"]["networkPolicy"] = wanted ? Json::object() : Json();
                 model["spec"]["router"] = wanted ? router_to("canary") : Json::object();
               });
               settle();
               for (const char* plural : {"podmonitors", "networkpolicies", "inferencepools", "httproutes"})
                 EXPECT_EQ(c.all(plural).size(), wanted ? 1u : 0u) << plural;
             }
           },
       .learns = true,
       .unwatched = true},
      {.name = "pod groups over two nodes, and a failure",
       .play =
           [](FakeCluster& c, const Settle& settle) {
             c.pod_group_versions = {"v1alpha2"};
             two_nodes(c);
             c.edit([](Json& model) { model["spec"]["scheduling"]["podGroup"] = true; });
             settle();
             EXPECT_TRUE(c.is_true("Ready"));
             fail(c, 0);
             settle();
             EXPECT_TRUE(c.is_true("Ready"));
             EXPECT_EQ(c.all("podgroups").size(), 1u) << "that of the former generation went with its pods";
           },
       .learns = true,
       .unwatched = true,
       .counts = true},
      {.name = "claims of uneven pods, another claim, and none",
       .play =
           [](FakeCluster& c, const Settle& settle) {
             c.serves_devices = true;
             c.devices = 2;
             c.drain_seconds = 2;
             two_nodes(c);
             c.edit([](Json& model) {
               model["spec"]["devices"] = {
                   {"count", 3}, {"type", "CPU"}, {"perNode", 2}, {"claim", {{"deviceClassName", "gpus"}}}};
               model["spec"]["parallelism"]["strategy"] = "Data";
             });
             settle();
             EXPECT_TRUE(c.is_true("Ready"));
             EXPECT_EQ(c.all("resourceclaimtemplates").size(), 2u);
             c.edit([](Json& model) { model["spec"]["devices"]["claim"]["selectors"] = {"true"}; });
             settle();
             EXPECT_EQ(c.all("resourceclaimtemplates").size(), 2u);
             c.edit([](Json& model) { model["spec"]["devices"].erase("claim"); });
             settle();
             EXPECT_TRUE(c.all("resourceclaimtemplates").empty());
           },
       .learns = true,
       .unwatched = true},
      {.name = "a plan from slices that appear late",
       .play =
           [](FakeCluster& c, const Settle& settle) {
             Json model = model_named("m");
             model["spec"]["devices"] = {
                 {"count", 2}, {"type", "GPU"}, {"resource", "deviceclass.resource.kubernetes.io/gpus"}};
             model["spec"].erase("resources");
             c.apply(model);
             settle();
             EXPECT_EQ(c.reason("Planned"), "DeviceMemoryUnknown");
             c.publish_devices(4, "80Gi");
             c.advance(std::chrono::seconds(60));
             settle();
             EXPECT_TRUE(c.is_true("Ready"));
           },
       .learns = true},
      {.name = "delete and create again",
       .play =
           [](FakeCluster& c, const Settle& settle) {
             apply(c, settle);
             c.remove_model();
             settle();
             EXPECT_TRUE(c.all("pods").empty() && c.all("services").empty() && c.all("configmaps").empty());
             apply(c, settle);
           }},
  };
  return all;
}

}  // namespace pm::op::test
