// SPDX-License-Identifier: Apache-2.0
// What `kubectl pm` prints about a ParallelModel, as pure functions of objects of the API server.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "controller/core/json.h"
#include "planner/plan.h"

namespace pm::plugin {

/// The whole story on a screen: the plan in a sentence, the start, conditions, replicas, the last failure.
std::string status_text(const k8s::Json& model);

/// Why the model has its layout: the plan with all ranks, hardware and rejected alternatives, or why there is none.
/// `plan` is that of the ConfigMap which status.plan.planHash names; nullopt where it may not be read.
std::string why_text(const k8s::Json& model, const std::optional<Plan>& plan);

/// Each rank with its node, state, bytes as planned and as measured, and progress. `live` has the /status of pods by
/// name, of those that answered; without one the state is that of the replica.
std::string ranks_text(const k8s::Json& model, const std::map<std::string, k8s::Json>& live);

/// Names the pod that answers for a replica (its node rank 0); "" when the entry of status.replicaStatuses names no
/// generation.
std::string first_pod(const std::string& model, const k8s::Json& replica);

}  // namespace pm::plugin
