// SPDX-License-Identifier: Apache-2.0
// Declares the snapshot that one reconcile reads. It holds values only, so a reconcile is a function of its snapshot.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "controller/core/object.h"
#include "controller/core/time.h"

namespace pm::op {

/// The settings of the installation.
struct Settings {
  std::string worker_image;            ///< default image for ParallelModels that name none
  bool read_only_root = true;          ///< readOnlyRootFilesystem of the worker
  std::string worker_cuda_image = {};  ///< as worker_image, for pods with GPUs; "": the same
  std::string ns = {};                 ///< of the controller; "": it runs in no pod
  bool operator==(const Settings&) const = default;
};

/// One ParallelModel and its environment. Objects are immutable; a change replaces the pointer.
struct Snapshot {
  k8s::ObjectPtr model;                                              ///< null: deleted
  std::vector<k8s::ObjectPtr> pods, config_maps, services, budgets;  ///< controlled by the model
  std::optional<std::vector<k8s::ObjectPtr>> nodes;                  ///< nullopt: nodes may not be read
  /// The devices that pods of all ParallelModels hold, by node and extended resource.
  std::map<std::string, std::map<std::string, int64_t>> devices_used;
  /// The bytes of each rank of other ParallelModels that holds a device, by node and extended resource; 0: they do not
  /// say. Only where nodes share devices, and while the model has no plan.
  std::map<std::string, std::map<std::string, std::vector<int64_t>>> memory_held;
  std::map<std::string, k8s::ObjectPtr> canaries;  ///< the ParallelModels that canary_names() has, by name; null: none
  bool serves_pools = true;                 ///< false: an InferencePool could not be read or created in this reconcile
  std::map<std::string, k8s::Json> probes;  ///< latest /status by pod name
  bool may_list_events = true;              ///< false: another list of Events was too recent
  k8s::WallTime now;
};

/// Returns the children of a kind in a const or mutable snapshot; null for other kinds.
template <class View>
auto* objects_of(View& view, const k8s::Resource& resource) {
  if (resource == k8s::pods_resource) return &view.pods;
  if (resource == k8s::config_maps_resource) return &view.config_maps;
  if (resource == k8s::services_resource) return &view.services;
  if (resource == k8s::pod_disruption_budgets_resource) return &view.budgets;
  return static_cast<decltype(&view.pods)>(nullptr);
}

}  // namespace pm::op
