// SPDX-License-Identifier: Apache-2.0
// Tests that the stores retain all that reconciles read, and little else.
#include "controller/operator/shell/store_options.h"

#include <gtest/gtest.h>

#include <set>

#include "controller/operator/api/object_text.h"
#include "tests/unit/controller/operator/simulator/fake_operator.h"
#include "tests/unit/controller/operator/simulator/server_objects.h"
#include "tests/unit/controller/operator/simulator/static_api_server.h"

namespace pm::op::test {
namespace {

const k8s::Resource& resource_of(const std::string& plural) {
  for (const k8s::Resource* one :
       {&parallel_models_resource, &k8s::pods_resource, &k8s::config_maps_resource, &k8s::services_resource,
        &k8s::pod_disruption_budgets_resource, &k8s::nodes_resource}) {
    if (one->plural == plural) return *one;
  }
  throw std::logic_error(plural);
}

struct StoreOptionsTest : testing::Test {
  StoreOptionsTest() { fill(server, {.models = 1, .replicas = 2, .nodes = 1}); }
  /// Returns the objects of a collection as the store retains them.
  std::vector<Json> kept(const std::string& plural) {
    std::vector<Json> out;
    for (const std::string& text : server.texts(plural)) {
      out.push_back(Json::parse(text));
      store_options(resource_of(plural)).prune(out.back());
    }
    return out;
  }
  StaticApiServer server;
};

std::set<std::string> names(const Json& object) {
  std::set<std::string> out;
  for (const auto& [key, value] : object.items()) out.insert(key);
  return out;
}

TEST_F(StoreOptionsTest, OfAllKindsNobodyElsesWords) {
  for (const char* plural : {"parallelmodels", "pods", "configmaps", "services", "poddisruptionbudgets", "nodes"}) {
    SCOPED_TRACE(plural);
    for (const std::string& text : server.texts(plural)) {
      Json whole = Json::parse(text);
      for (const char* key : {"kubectl.kubernetes.io/last-applied-configuration", "argocd.argoproj.io/tracking-id"})
        whole["metadata"]["annotations"][key] = std::string(1000, 'x');
      Json slim = whole;
      store_options(resource_of(plural)).prune(slim);
      const std::string left = slim.dump();
      EXPECT_EQ(left.find("creationTimestamp") != std::string::npos, std::string(plural) == "pods");  // for startup_of
      for (const char* word : {"managedFields", "argocd", "last-applied", "imageID", "volumeMounts", "clusterIPs",
                               "disruptionsAllowed", "sizeBytes"})
        EXPECT_EQ(left.find(word), std::string::npos) << word;
      EXPECT_EQ(k8s::key_of(slim), k8s::key_of(whole));
      EXPECT_EQ(k8s::uid_of(slim), k8s::uid_of(whole));
      EXPECT_EQ(k8s::version_of(slim), k8s::version_of(whole));
      EXPECT_EQ(k8s::controller_of(slim), k8s::controller_of(whole));
    }
  }
}

TEST_F(StoreOptionsTest, WhatReconcilesReadIsLeft) {
  for (const Json& model : kept("parallelmodels")) {
    const Json whole = Json::parse(server.texts("parallelmodels").front());
    EXPECT_EQ(model["spec"], whole["spec"]);
    EXPECT_EQ(model["status"], whole["status"]);
    EXPECT_EQ(parse_owner(model).reference, parse_owner(whole).reference);
    EXPECT_EQ(parse_owner(model).generation, 1);
  }
  for (const Json& pod : kept("pods")) {
    EXPECT_EQ(names(pod), (std::set<std::string>{"metadata", "spec", "status"}));
    EXPECT_EQ(names(pod["metadata"]),
              (std::set<std::string>{"annotations", "creationTimestamp", "labels", "name", "namespace",
                                     "ownerReferences", "resourceVersion", "uid"}));
    EXPECT_EQ(names(pod["status"]), (std::set<std::string>{"conditions", "containerStatuses", "phase", "podIP"}));
    EXPECT_EQ(pod["spec"]["nodeName"], "node-a");
    for (const std::string& label :
         {label::name, label::role, label::replica, label::node_rank, label::replica_generation, label::pod_hash})
      EXPECT_NE(k8s::label_of(pod, label), "");
  }
  for (const Json& map : kept("configmaps")) {
    EXPECT_EQ(map["data"], Json::parse(server.texts("configmaps").front())["data"]);
    for (const std::string& name : {annotation::source, annotation::inputs}) EXPECT_NE(annotation_of(map, name), "");
  }
  Json copy = kept("configmaps").front();
  copy["metadata"]["labels"][label::role] = "policy";
  store_options(k8s::config_maps_resource).prune(copy);
  EXPECT_FALSE(copy.contains("data")) << "a copy of a policy is known by its name";
}

TEST_F(StoreOptionsTest, WhatIsCorrectedIsStillSeenToBeWrong) {
  for (const char* plural : {"services", "poddisruptionbudgets"}) {
    for (const Json& child : kept(plural)) {
      for (const auto& [key, value] : child["spec"].items()) EXPECT_NE(key, "sessionAffinity");
      EXPECT_EQ(child["metadata"]["labels"].size(), 6u);
      EXPECT_TRUE(child["spec"].contains("selector"));
    }
  }
}

TEST_F(StoreOptionsTest, OddObjectsStayAsTheyAre) {
  for (const k8s::Resource* one :
       {&parallel_models_resource, &k8s::pods_resource, &k8s::config_maps_resource, &k8s::services_resource,
        &k8s::pod_disruption_budgets_resource, &k8s::nodes_resource}) {
    k8s::StoreWriter writer(store_options(*one));
    for (const Json& odd :
         {Json{{"metadata", {{"name", "a"}, {"labels", 1}, {"annotations", "x"}, {"ownerReferences", 7}}},
               {"spec", 1},
               {"status", Json::array({1})}},
          Json{{"metadata", {{"name", "b"}}},
               {"spec", {{"containers", Json::object()}}},
               {"status", {{"conditions", "x"}, {"containerStatuses", Json::array({3})}}}}}) {
      writer.apply(odd);
      EXPECT_EQ(k8s::key_of(*writer.reader().get(k8s::key_of(odd))), k8s::key_of(odd)) << one->plural;
    }
  }
}

TEST(KeptIndexes, FindPodsByNodeAndDevicesAndModelsThatWait) {
  const auto pods = store_options(k8s::pods_resource).indexes, models = store_options(parallel_models_resource).indexes;
  Json pod{
      {"metadata", {{"name", "p"}}},
      {"spec",
       {{"nodeName", "n"},
        {"containers", Json::array({{{"resources", {{"limits", {{"nvidia.com/gpu", "2"}, {"memory", "1Gi"}}}}}}})}}},
      {"status", {{"phase", "Running"}}}};
  store_options(k8s::pods_resource).prune(pod);
  EXPECT_EQ(pods.at(index::node)(pod), "n");
  EXPECT_EQ(pods.at(index::devices)(pod), index::yes);
  Json ended = pod, unbound = pod, without = pod;
  ended["status"]["phase"] = "Failed", unbound["spec"].erase("nodeName"), without["spec"].erase("containers");
  for (const Json& other : {ended, unbound, without}) EXPECT_EQ(pods.at(index::devices)(other), "");
  const auto model = [](const char* planned, const char* scheduled) {
    return Json{{"status",
                 {{"conditions", Json::array({{{"type", "Planned"}, {"status", planned}},
                                              {{"type", "Scheduled"}, {"status", scheduled}}})}}}};
  };
  EXPECT_EQ(models.at(index::waits)(model("True", "True")), "");
  EXPECT_EQ(models.at(index::waits)(model("True", "False")), index::yes);
  EXPECT_EQ(models.at(index::waits)(model("False", "True")), index::yes);
  EXPECT_EQ(models.at(index::waits)(Json::object()), index::yes) << "a new one";
  EXPECT_THROW((void)store_options(k8s::leases_resource), std::logic_error);
}

}  // namespace
}  // namespace pm::op::test
