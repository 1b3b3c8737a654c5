// SPDX-License-Identifier: Apache-2.0
// Declares the state of a pod, as its worker container reports it. The phase alone is not trusted.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "contract/reasons.h"
#include "controller/operator/observed/snapshot.h"

namespace pm::op {

/// The exit of a worker.
struct Exit {
  std::string reason;   ///< the name of a Reason, or the CamelCase word of a worker of another version
  std::string message;  ///< clipped
  std::optional<int> rank, code;
  std::optional<k8s::WallTime> at;
};

/// Why a pod does not run yet, with a reason of the condition table.
struct Wait {
  std::string reason, message;
};

/// The Events about volumes of a pod.
struct MountEvent {
  Wait wait;  ///< an empty reason when the Events do not explain why its containers are not created
  k8s::WallTime when{};
};

struct PodState {
  k8s::ObjectPtr object;
  std::string name, node, hash;
  int replica = -1, node_rank = -1, nodes = 1;
  int64_t replica_generation = 0;
  bool deleting = false, ready = false;
  /// True for a pod that is being deleted on a node that is gone or not ready. It counts as dead without confirmation.
  bool fenced = false;
  std::optional<k8s::WallTime> created_since, bound_since, running_since, ready_since;
  /// The time of the binding to a node, while containers are not created. Volumes may be the cause; only Events tell.
  std::optional<k8s::WallTime> creating_since;
  std::optional<Exit> exit;
  std::optional<Wait> wait;
  /// Why Kubernetes or a queue ends the pod for reasons of its own, "EvictionByEvictionAPI: ..."; "" if it does not.
  std::string disruption;
  std::string unhealthy_device;  ///< "nvidia.com/gpu GPU-1"; "" while the kubelet reports none
  std::string pod_group;         ///< its spec.schedulingGroup; "": none
  std::string claim_template;    ///< the ResourceClaimTemplate of its devices; "": none
  bool gated = false;            ///< scheduling gates hold it, as those of a queue do
  bool bound() const { return !node.empty(); }
  /// Returns true while it may still hold devices and communicate.
  bool live() const { return !exit && !fenced; }
};

/// Parses a pod of any role. Every field is untrusted.
PodState pod_state(const k8s::ObjectPtr& pod, const Snapshot&);
/// Returns all pods with role worker that belong to a replica.
std::vector<PodState> worker_pods(const Snapshot&);

/// Retains the fields of a pod that the operator reads: names, labels, our annotations, owner, node, limits, claims,
/// conditions and the state of the worker. Most of a pod is dropped: spec, volumes, mounts, tolerations, other
/// statuses. Pods are compared by their hash label, never by spec.
void prune_pod(k8s::Json& pod);

/// Returns true for an existing node whose Ready condition is true.
bool node_ready(const Snapshot&, const std::string& node);

}  // namespace pm::op
