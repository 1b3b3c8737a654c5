// SPDX-License-Identifier: Apache-2.0
// Builds the PodDisruptionBudget, which limits concurrent evictions.
#include <algorithm>

#include "controller/operator/children/desired.h"

namespace pm::op {

std::optional<Json> disruption_budget(const Owner& owner, const Spec& spec, int nodes_per_replica, bool protects) {
  const int all = spec.replicas * nodes_per_replica,
            available = protects ? all : all - std::max(1, spec.update.max_unavailable);
  if (available <= 0) return std::nullopt;
  return Json{{"apiVersion", "policy/v1"},
              {"kind", "PodDisruptionBudget"},
              {"metadata", child_metadata(owner, owner.key.name, "budget")},
              {"spec",
               {{"minAvailable", available},
                {"unhealthyPodEvictionPolicy", "AlwaysAllow"},
                {"selector", {{"matchLabels", {{label::name, owner.key.name}, {label::role, "worker"}}}}}}}};
}

}  // namespace pm::op
