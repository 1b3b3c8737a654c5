#include "controller/operator/kept.h"

#include <stdexcept>

#include "controller/core/conditions.h"
#include "controller/operator/pod_state.h"
#include "controller/operator/text.h"

namespace pm::op {

namespace {

bool ours(const std::string& key) { return key.rfind("parallelmodel.dev/", 0) == 0; }

void keep_ours(Json& metadata, const char* map) {
  const auto all = metadata.find(map);
  if (all == metadata.end() || !all->is_object()) return;
  for (auto entry = all->begin(); entry != all->end();) entry = ours(entry.key()) ? std::next(entry) : all->erase(entry);
  if (all->empty()) metadata.erase(all);
}

/// Of what everybody adds to an object: nothing.
Json& prune_metadata(Json& object) {
  Json& metadata = object["metadata"];
  for (const char* field : {"managedFields", "creationTimestamp", "finalizers"}) metadata.erase(field);
  keep_ours(metadata, "annotations");
  return metadata;
}

void prune_model(Json& model) { keep_ours(prune_metadata(model), "labels"); }

/// A copy of a user's policy is for pods: here its name says all.
void prune_map(Json& map) {
  keep_ours(prune_metadata(map), "labels");
  if (k8s::label_of(map, label::role) == "policy") map.erase("data");
}

/// Labels stay, for all of them are mended. The status changes with pods, and defaults of the server are of no interest: no child wishes for them.
void prune_mended(Json& child) {
  prune_metadata(child);
  child.erase("status");
  if (!at(child, "/spec").is_object()) return;
  for (const char* field : {"clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy", "externalTrafficPolicy", "sessionAffinity"}) child["spec"].erase(field);
}

/// What nobody here reads of a node is most of it: images, node info, conditions but Ready.
void prune_node(Json& node) {
  Json kept{{"apiVersion", "v1"}, {"kind", "Node"}, {"metadata", node.value("metadata", Json::object())}};
  kept["metadata"].erase("managedFields");
  kept["metadata"].erase("annotations");
  kept["status"]["allocatable"] = at(node, "/status/allocatable");
  kept["spec"]["unschedulable"] = bool_at(node, "/spec/unschedulable");
  kept["status"]["conditions"] = Json::array();
  if (const Json* ready = k8s::find_condition(at(node, "/status/conditions"), "Ready")) {
    kept["status"]["conditions"].push_back({{"type", "Ready"}, {"status", ready->value("status", "Unknown")}});
  }
  node = std::move(kept);
}

std::string holds_devices(const Json& pod) {
  const std::string phase = k8s::string_at(pod, "/status/phase");
  const Json& limits = at(pod, "/spec/containers/0/resources/limits");   // prune_pod() keeps devices alone
  return limits.is_object() && !limits.empty() && phase != "Failed" && phase != "Succeeded" && !k8s::string_at(pod, "/spec/nodeName").empty() ? index::yes : "";
}

std::string waits(const Json& model) {
  const Json& conditions = at(model, "/status/conditions");
  return k8s::condition_is_true(conditions, "Planned") && k8s::condition_is_true(conditions, "Scheduled") ? "" : index::yes;
}

}  // namespace

k8s::StoreOptions kept_of(const k8s::Resource& resource) {
  if (resource == ParallelModels) return {.indexes = {{index::waits, waits}}, .prune = prune_model, .packed = true};
  if (resource == k8s::Pods) {
    return {.indexes = {{index::node, [](const Json& pod) { return k8s::string_at(pod, "/spec/nodeName"); }}, {index::devices, holds_devices}}, .prune = prune_pod, .packed = true};
  }
  if (resource == k8s::ConfigMaps) return {.prune = prune_map, .packed = true};
  if (resource == k8s::Services || resource == k8s::PodDisruptionBudgets) return {.prune = prune_mended, .packed = true};
  if (resource == k8s::Nodes) return {.prune = prune_node};
  throw std::logic_error("no store is made for " + resource.plural);
}

}  // namespace pm::op
