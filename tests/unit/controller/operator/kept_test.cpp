// What the stores keep is all that passes read, and little else.
#include "controller/operator/kept.h"

#include <gtest/gtest.h>

#include <set>

#include "controller/operator/text.h"
#include "fake_operator.h"
#include "served.h"
#include "shelf.h"

namespace pm::op::test {
namespace {

const k8s::Resource& resource_of(const std::string& plural) {
  for (const k8s::Resource* one : {&ParallelModels, &k8s::Pods, &k8s::ConfigMaps, &k8s::Services, &k8s::PodDisruptionBudgets, &k8s::Nodes}) {
    if (one->plural == plural) return *one;
  }
  throw std::logic_error(plural);
}

struct Kept : testing::Test {
  Kept() { fill(shelf, {.models = 1, .groups = 2, .nodes = 1}); }
  /// The objects of a collection as the store keeps them.
  std::vector<Json> kept(const std::string& plural) {
    std::vector<Json> out;
    for (const std::string& text : shelf.texts(plural)) {
      out.push_back(Json::parse(text));
      kept_of(resource_of(plural)).prune(out.back());
    }
    return out;
  }
  Shelf shelf;
};

std::set<std::string> names(const Json& object) {
  std::set<std::string> out;
  for (const auto& [key, value] : object.items()) out.insert(key);
  return out;
}

TEST_F(Kept, OfAllKindsNobodyElsesWords) {
  for (const char* plural : {"parallelmodels", "pods", "configmaps", "services", "poddisruptionbudgets", "nodes"}) {
    SCOPED_TRACE(plural);
    for (const std::string& text : shelf.texts(plural)) {
      Json whole = Json::parse(text);
      for (const char* key : {"kubectl.kubernetes.io/last-applied-configuration", "argocd.argoproj.io/tracking-id"}) whole["metadata"]["annotations"][key] = std::string(1000, 'x');
      Json slim = whole;
      kept_of(resource_of(plural)).prune(slim);
      const std::string left = slim.dump();
      for (const char* word : {"managedFields", "creationTimestamp", "argocd", "last-applied", "imageID", "volumeMounts", "clusterIPs", "disruptionsAllowed", "sizeBytes"}) EXPECT_EQ(left.find(word), std::string::npos) << word;
      EXPECT_EQ(k8s::key_of(slim), k8s::key_of(whole));
      EXPECT_EQ(k8s::uid_of(slim), k8s::uid_of(whole));
      EXPECT_EQ(k8s::version_of(slim), k8s::version_of(whole));
      EXPECT_EQ(k8s::controller_of(slim), k8s::controller_of(whole));
    }
  }
}

TEST_F(Kept, WhatPassesReadIsLeft) {
  for (const Json& model : kept("parallelmodels")) {
    const Json whole = Json::parse(shelf.texts("parallelmodels").front());
    EXPECT_EQ(model["spec"], whole["spec"]);
    EXPECT_EQ(model["status"], whole["status"]);
    EXPECT_EQ(owner_of(model).reference, owner_of(whole).reference);
    EXPECT_EQ(owner_of(model).generation, 1);
  }
  for (const Json& pod : kept("pods")) {
    EXPECT_EQ(names(pod), (std::set<std::string>{"metadata", "spec", "status"}));
    EXPECT_EQ(names(pod["metadata"]), (std::set<std::string>{"annotations", "labels", "name", "namespace", "ownerReferences", "resourceVersion", "uid"}));
    EXPECT_EQ(names(pod["status"]), (std::set<std::string>{"conditions", "containerStatuses", "phase", "podIP"}));
    EXPECT_EQ(pod["spec"]["nodeName"], "node-a");
    for (const std::string& label : {label::name, label::role, label::group, label::node_rank, label::incarnation, label::pod_hash}) EXPECT_NE(k8s::label_of(pod, label), "");
  }
  for (const Json& map : kept("configmaps")) {
    EXPECT_EQ(map["data"], Json::parse(shelf.texts("configmaps").front())["data"]);
    for (const std::string& name : {annotation::source, annotation::inputs}) EXPECT_NE(annotation_of(map, name), "");
  }
  Json copy = kept("configmaps").front();
  copy["metadata"]["labels"][label::role] = "policy";
  kept_of(k8s::ConfigMaps).prune(copy);
  EXPECT_FALSE(copy.contains("data")) << "a copy of a policy is known by its name";
}

TEST_F(Kept, WhatIsMendedIsStillSeenToBeWrong) {
  for (const char* plural : {"services", "poddisruptionbudgets"}) {
    for (const Json& child : kept(plural)) {
      for (const auto& [key, value] : child["spec"].items()) EXPECT_NE(key, "sessionAffinity");
      EXPECT_EQ(child["metadata"]["labels"].size(), 6u);
      EXPECT_TRUE(child["spec"].contains("selector"));
    }
  }
}

TEST_F(Kept, OddObjectsStayAsTheyAre) {
  for (const k8s::Resource* one : {&ParallelModels, &k8s::Pods, &k8s::ConfigMaps, &k8s::Services, &k8s::PodDisruptionBudgets, &k8s::Nodes}) {
    k8s::StoreWriter writer(kept_of(*one));
    for (const Json& odd : {Json{{"metadata", {{"name", "a"}, {"labels", 1}, {"annotations", "x"}, {"ownerReferences", 7}}}, {"spec", 1}, {"status", Json::array({1})}},
                            Json{{"metadata", {{"name", "b"}}}, {"spec", {{"containers", Json::object()}}}, {"status", {{"conditions", "x"}, {"containerStatuses", Json::array({3})}}}}}) {
      writer.apply(odd);
      EXPECT_EQ(k8s::key_of(*writer.reader().get(k8s::key_of(odd))), k8s::key_of(odd)) << one->plural;
    }
  }
}

TEST(KeptIndexes, FindPodsByNodeAndDevicesAndModelsThatWait) {
  const auto pods = kept_of(k8s::Pods).indexes, models = kept_of(ParallelModels).indexes;
  Json pod{{"metadata", {{"name", "p"}}}, {"spec", {{"nodeName", "n"}, {"containers", Json::array({{{"resources", {{"limits", {{"nvidia.com/gpu", "2"}, {"memory", "1Gi"}}}}}}})}}}, {"status", {{"phase", "Running"}}}};
  kept_of(k8s::Pods).prune(pod);
  EXPECT_EQ(pods.at(index::node)(pod), "n");
  EXPECT_EQ(pods.at(index::devices)(pod), index::yes);
  Json ended = pod, unbound = pod, without = pod;
  ended["status"]["phase"] = "Failed", unbound["spec"].erase("nodeName"), without["spec"].erase("containers");
  for (const Json& other : {ended, unbound, without}) EXPECT_EQ(pods.at(index::devices)(other), "");
  const auto model = [](const char* planned, const char* scheduled) {
    return Json{{"status", {{"conditions", Json::array({{{"type", "Planned"}, {"status", planned}}, {{"type", "Scheduled"}, {"status", scheduled}}})}}}};
  };
  EXPECT_EQ(models.at(index::waits)(model("True", "True")), "");
  EXPECT_EQ(models.at(index::waits)(model("True", "False")), index::yes);
  EXPECT_EQ(models.at(index::waits)(model("False", "True")), index::yes);
  EXPECT_EQ(models.at(index::waits)(Json::object()), index::yes) << "a new one";
  EXPECT_THROW((void)kept_of(k8s::Leases), std::logic_error);
}

}  // namespace
}  // namespace pm::op::test
