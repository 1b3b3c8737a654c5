// SPDX-License-Identifier: Apache-2.0
#include "controller/operator/shell/store_options.h"

#include <stdexcept>

#include "controller/core/conditions.h"
#include "controller/operator/api/object_text.h"
#include "controller/operator/api/spec.h"
#include "controller/operator/observed/pod_state.h"
#include "controller/operator/replicas/evacuation.h"

namespace pm::op {

namespace {

bool is_own_key(const std::string& key) { return key.rfind("parallelmodel.dev/", 0) == 0; }

void retain_own_keys(Json& metadata, const char* map) {
  const auto all = metadata.find(map);
  if (all == metadata.end() || !all->is_object()) return;
  for (auto entry = all->begin(); entry != all->end();)
    entry = is_own_key(entry.key()) ? std::next(entry) : all->erase(entry);
  if (all->empty()) metadata.erase(all);
}

/// Drops the metadata that other components add to an object.
Json& prune_metadata(Json& object) {
  Json& metadata = object["metadata"];
  for (const char* field : {"managedFields", "creationTimestamp", "finalizers"}) metadata.erase(field);
  retain_own_keys(metadata, "annotations");
  return metadata;
}

void prune_model(Json& model) { retain_own_keys(prune_metadata(model), "labels"); }

/// Drops the data of a policy copy, for only pods read it.
void prune_map(Json& map) {
  retain_own_keys(prune_metadata(map), "labels");
  if (k8s::label_of(map, label::role) == "policy") map.erase("data");
}

/// Retains labels, for drift in any of them is corrected. Drops the status, which changes with pods, and defaults of
/// the server, which no child sets.
void prune_child(Json& child) {
  prune_metadata(child);
  child.erase("status");
  if (!at(child, "/spec").is_object()) return;
  for (const char* field : {"clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy", "sessionAffinity"})
    child["spec"].erase(field);
}

/// Drops images, node info, most taints and all conditions but Ready, which are most of a node.
void prune_node(Json& node) {
  Json pruned{{"apiVersion", "v1"}, {"kind", "Node"}, {"metadata", node.value("metadata", Json::object())}};
  pruned["metadata"].erase("managedFields");
  pruned["metadata"].erase("annotations");
  pruned["status"]["allocatable"] = at(node, "/status/allocatable");
  pruned["spec"]["unschedulable"] = bool_at(node, "/spec/unschedulable");
  if (const Json& taints = at(node, "/spec/taints"); taints.is_array()) {
    for (const Json& taint : taints) {
      if (announces_removal(k8s::string_at(taint, "/key"))) pruned["spec"]["taints"].push_back(taint);
    }
  }
  pruned["status"]["conditions"] = Json::array();
  if (const Json* ready = k8s::find_condition(at(node, "/status/conditions"), "Ready")) {
    pruned["status"]["conditions"].push_back({{"type", "Ready"}, {"status", ready->value("status", "Unknown")}});
  }
  node = std::move(pruned);
}

std::string holds_devices(const Json& pod) {
  const std::string phase = k8s::string_at(pod, "/status/phase");
  const Json& limits = at(pod, "/spec/containers/0/resources/limits");  // prune_pod() retains only devices
  return limits.is_object() && !limits.empty() && phase != "Failed" && phase != "Succeeded" &&
                 !k8s::string_at(pod, "/spec/nodeName").empty()
             ? index::yes
             : "";
}

std::string waits(const Json& model) {
  const Json& conditions = at(model, "/status/conditions");
  return k8s::condition_is_true(conditions, "Planned") && k8s::condition_is_true(conditions, "Scheduled") ? ""
                                                                                                          : index::yes;
}

std::string routes(const Json& model) { return canary_names(model).empty() ? "" : index::yes; }

}  // namespace

k8s::StoreOptions store_options(const k8s::Resource& resource) {
  if (resource == parallel_models_resource)
    return {.indexes = {{index::waits, waits}, {index::routes, routes}}, .prune = prune_model, .packed = true};
  if (resource == k8s::pods_resource) {
    return {.indexes = {{index::node, [](const Json& pod) { return k8s::string_at(pod, "/spec/nodeName"); }},
                        {index::devices, holds_devices}},
            .prune = prune_pod,
            .packed = true};
  }
  if (resource == k8s::config_maps_resource) return {.prune = prune_map, .packed = true};
  if (resource == k8s::services_resource || resource == k8s::pod_disruption_budgets_resource)
    return {.prune = prune_child, .packed = true};
  if (resource == k8s::nodes_resource) return {.prune = prune_node};
  throw std::logic_error("no store is made for " + resource.plural);
}

}  // namespace pm::op
