// Everything that one pass of the operator looks at, as values: the same snapshot always gives the same answer.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "controller/core/object.h"
#include "controller/core/time.h"

namespace pm::op {

/// What the person who installed the operator decided.
struct Settings {
  std::string worker_image;               ///< for ParallelModels that name none
  bool read_only_root = true;             ///< readOnlyRootFilesystem of the worker
  std::string worker_cuda_image = {};     ///< as worker_image, for pods with GPUs; "": the same
  bool operator==(const Settings&) const = default;
};

/// One ParallelModel and its surroundings. Objects are immutable; a change replaces the pointer.
struct Snapshot {
  k8s::ObjectPtr model;                   ///< null: it is gone
  std::vector<k8s::ObjectPtr> pods, config_maps, services, budgets;   ///< that the model controls
  std::optional<std::vector<k8s::ObjectPtr>> nodes;                   ///< nothing: nodes may not be read
  /// node -> extended resource -> how much of it pods of all ParallelModels hold there
  std::map<std::string, std::map<std::string, int64_t>> devices_used;
  std::map<std::string, k8s::Json> probes;                            ///< pod name -> what its ops port answered to /status just now
  bool may_list_events = true;            ///< false: somebody else's were listed a short time ago
  k8s::WallTime now;
};

/// The children of a kind in a (const or mutable) snapshot.
template <class View>
auto* objects_of(View& view, const k8s::Resource& resource) {
  if (resource == k8s::Pods) return &view.pods;
  if (resource == k8s::ConfigMaps) return &view.config_maps;
  if (resource == k8s::Services) return &view.services;
  if (resource == k8s::PodDisruptionBudgets) return &view.budgets;
  return static_cast<decltype(&view.pods)>(nullptr);
}

}  // namespace pm::op
