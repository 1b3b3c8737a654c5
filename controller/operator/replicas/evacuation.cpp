// SPDX-License-Identifier: Apache-2.0
#include "controller/operator/replicas/evacuation.h"

#include <algorithm>
#include <array>

#include "controller/operator/api/object_text.h"

namespace pm::op {

namespace {

struct Taint {
  std::string key, value, effect;
};

bool tolerates(const Json& tolerations, const Taint& taint) {
  return std::any_of(tolerations.begin(), tolerations.end(), [&](const Json& toleration) {
    const std::string key = k8s::string_at(toleration, "/key"), effect = k8s::string_at(toleration, "/effect");
    const bool any_value = k8s::string_at(toleration, "/operator") == "Exists";
    return (effect.empty() || effect == taint.effect) && (key == taint.key || (key.empty() && any_value)) &&
           (any_value || k8s::string_at(toleration, "/value") == taint.value);
  });
}

bool is_to_leave(const Json& node, const Spec& spec) {
  const auto applies = [&](const Taint& taint) { return !tolerates(spec.scheduling.tolerations, taint); };
  if (bool_at(node, "/spec/unschedulable") && applies({"node.kubernetes.io/unschedulable", "", "NoSchedule"}))
    return true;
  const Json& taints = at(node, "/spec/taints");
  return taints.is_array() && std::any_of(taints.begin(), taints.end(), [&](const Json& taint) {
           const Taint found{k8s::string_at(taint, "/key"), k8s::string_at(taint, "/value"),
                             k8s::string_at(taint, "/effect")};
           return announces_removal(found.key) && found.effect != "PreferNoSchedule" && applies(found);
         });
}

/// Returns true when the current generation of a replica moves off a node and not all of its pods have found another.
bool waits_for_room(const ReplicaRecord& record, const std::vector<PodState>& pods, const std::string& pod_hash) {
  if (!record.previous || record.pod_hash != pod_hash) return false;
  bool moves = false, some_bound = false, some_wait = false;
  for (const PodState& pod : pods) {
    if (pod.replica != record.index) continue;
    moves |= pod.replica_generation == record.previous && pod.hash == pod_hash;
    if (pod.replica_generation == record.replica_generation) (pod.bound() ? some_bound : some_wait) = true;
  }
  return moves && (some_wait || !some_bound);
}

}  // namespace

bool announces_removal(const std::string& taint_key) {
  static const std::array keys{"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption",
                               "cloud.google.com/impending-node-termination"};
  return std::find(keys.begin(), keys.end(), taint_key) != keys.end();
}

std::set<std::string> nodes_to_leave(const Spec& spec, const Snapshot& snapshot) {
  std::set<std::string> out;
  if (!snapshot.nodes) return out;
  for (const auto& node : *snapshot.nodes) {
    if (is_to_leave(*node, spec)) out.insert(k8s::key_of(*node).name);
  }
  return out;
}

bool protects_from_eviction(const Spec& spec, const Snapshot& snapshot, const std::vector<ReplicaRecord>& records,
                            const std::string& pod_hash) {
  if (spec.update.max_surge == 0 || !snapshot.nodes) return false;
  return std::none_of(records.begin(), records.end(), [&](const ReplicaRecord& record) {
    const auto end = surge_end(record, spec);
    return end && snapshot.now >= *end && waits_for_room(record, worker_pods(snapshot), pod_hash);
  });
}

std::optional<k8s::WallTime> surge_end(const ReplicaRecord& record, const Spec& spec) {
  if (!record.previous || !record.surge_since) return std::nullopt;
  const k8s::WallTime begin =
      std::max({*record.surge_since, backoff_until(record, spec.failure), record.wait_until.value_or(k8s::WallTime{})});
  return begin + spec.update.surge_timeout;
}

}  // namespace pm::op
