// SPDX-License-Identifier: Apache-2.0
// Declares how long a replica took from the creation of its pods until it served, by stage.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "controller/operator/observed/pod_state.h"

namespace pm::op {

/// Seconds of each stage, in their order. Kubernetes reports whole seconds, so only `loaded` has fractions of its own.
struct Startup {
  double scheduled = 0;  ///< until the last pod has a node
  double pulled = 0;     ///< until the last container runs: volumes mounted, image pulled
  double loaded = 0;     ///< the slowest rank's weights
  double warmed = 0;     ///< the rest: the process, connections between ranks, graph capture, the first probe
  double total() const { return scheduled + pulled + loaded + warmed; }
};

/// Returns the stages of a serving replica from its pods and the time that its slowest rank has loaded.
Startup startup_of(const std::vector<const PodState*>& pods, double load_seconds);

k8s::Json to_json(const Startup&);
/// Returns nullopt unless the value has all stages.
std::optional<Startup> startup_from_json(const k8s::Json&);
/// "12 s: scheduled 0 s, pulled 1 s, loaded 8.2 s, warmed up 2.8 s".
std::string to_text(const Startup&);

}  // namespace pm::op
