// How many pods may be evicted at once.
#include <algorithm>

#include "controller/operator/desired.h"

namespace pm::op {

Json disruption_budget(const Owner& owner, const Spec& spec, int nodes_per_group) {
  const int available = std::max(0, spec.replicas * nodes_per_group - std::max(1, spec.update.max_unavailable));
  return {{"apiVersion", "policy/v1"},
          {"kind", "PodDisruptionBudget"},
          {"metadata", child_metadata(owner, owner.key.name, "budget")},
          {"spec",
           {{"minAvailable", available},
            {"unhealthyPodEvictionPolicy", "AlwaysAllow"},
            {"selector", {{"matchLabels", {{label::name, owner.key.name}, {label::role, "worker"}}}}}}}};
}

}  // namespace pm::op
