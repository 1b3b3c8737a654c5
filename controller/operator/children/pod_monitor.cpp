// SPDX-License-Identifier: Apache-2.0
// Builds the PodMonitor, by which the Prometheus operator finds the metrics of the ranks.
#include "controller/core/object.h"
#include "controller/operator/children/desired.h"

namespace pm::op {

Json pod_monitor(const Owner& owner) {
  return {{"apiVersion", k8s::api_version_of(pod_monitors_resource)},
          {"kind", pod_monitors_resource.kind},
          {"metadata", child_metadata(owner, owner.key.name, "monitor")},
          {"spec",
           {{"selector", {{"matchLabels", {{label::name, owner.key.name}, {label::role, "worker"}}}}},
            {"podMetricsEndpoints", Json::array({{{"port", "admin"}, {"path", "/metrics"}}})}}}};
}

}  // namespace pm::op
