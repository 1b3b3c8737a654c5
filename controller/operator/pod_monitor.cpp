// How the Prometheus operator finds the ranks' metrics.
#include "controller/core/object.h"
#include "controller/operator/desired.h"

namespace pm::op {

Json pod_monitor(const Owner& owner) {
  return {{"apiVersion", k8s::api_version_of(PodMonitors)},
          {"kind", PodMonitors.kind},
          {"metadata", child_metadata(owner, owner.key.name, "monitor")},
          {"spec",
           {{"selector", {{"matchLabels", {{label::name, owner.key.name}, {label::role, "worker"}}}}},
            {"podMetricsEndpoints", Json::array({{{"port", "ops"}, {"path", "/metrics"}}})}}}};
}

}  // namespace pm::op
