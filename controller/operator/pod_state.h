// What a pod says about itself, judged by its worker container and never by its phase alone.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "controller/operator/snapshot.h"

namespace pm::op {

/// The end of a worker.
struct Exit {
  std::string reason;                   ///< RankLost, RankHung, OOMKilled, NodeLost, ... : a CamelCase word
  std::string message;                  ///< clipped
  std::optional<int> rank, code;
  std::optional<k8s::WallTime> at;
};

/// Why a pod does not run yet, in words of the condition table.
struct Wait { std::string reason, message; };

/// What Events said of a pod.
struct Heard {
  Wait wait;                            ///< an empty reason when they do not say why its containers are not made
  k8s::WallTime when{};
};

struct PodState {
  k8s::ObjectPtr object;
  std::string name, node, hash;
  int group = -1, node_rank = -1, nodes = 1;
  int64_t incarnation = 0;
  bool deleting = false, ready = false;
  /// Being deleted on a node that is gone or not ready: counts as dead although nobody can confirm it.
  bool fenced = false;
  std::optional<k8s::WallTime> bound_since, running_since, ready_since;
  /// Bound to a node since then, with containers still being made: volumes may be the reason, and only Events tell.
  std::optional<k8s::WallTime> creating_since;
  std::optional<Exit> exit;
  std::optional<Wait> wait;
  bool bound() const { return !node.empty(); }
  /// May still hold devices and talk to others.
  bool live() const { return !exit && !fenced; }
};

/// Reads a pod of any role. Every field is untrusted.
PodState pod_state(const k8s::ObjectPtr& pod, const Snapshot&);
/// All pods with role worker that belong to a group.
std::vector<PodState> worker_pods(const Snapshot&);

/// Keeps of a pod what this operator reads: names, labels, our annotations, owner, node, limits, conditions, state of the worker. The rest is most
/// of it: specs, volumes, mounts, tolerations, other statuses. Pods are compared by the label of their hash, never by spec.
void prune_pod(k8s::Json& pod);

/// True for a node that is there and has condition Ready.
bool node_ready(const Snapshot&, const std::string& node);

}  // namespace pm::op
