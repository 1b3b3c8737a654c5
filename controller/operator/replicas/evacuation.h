// SPDX-License-Identifier: Apache-2.0
// Declares which nodes replicas leave before something ends their pods there: nodes that are cordoned, or that an
// autoscaler is about to remove.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "controller/operator/replicas/replica_planner.h"

namespace pm::op {

/// The keys of taints by which autoscalers announce that they remove a node.
bool announces_removal(const std::string& taint_key);
/// Returns the nodes to leave. A node whose taint the spec tolerates is none: the next pods could be bound to it again.
std::set<std::string> nodes_to_leave(const Spec&, const Snapshot&);

/// Returns true when evictions must wait: each replica on a node to leave moves first. It takes a surge, so evictions
/// need not wait with maxSurge 0, when nodes may not be read, or once a move has found no room within
/// surgeTimeoutSeconds. Then the status has announced the gap.
bool protects_from_eviction(const Spec&, const Snapshot&, const std::vector<ReplicaRecord>&,
                            const std::string& pod_hash);
/// Returns when a move, or another surge, has waited for room for as long as it may; nullopt without a surge.
std::optional<k8s::WallTime> surge_end(const ReplicaRecord&, const Spec&);

}  // namespace pm::op
