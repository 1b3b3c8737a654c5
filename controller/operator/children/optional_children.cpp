// SPDX-License-Identifier: Apache-2.0
#include "controller/operator/children/optional_children.h"

#include <algorithm>

namespace pm::op {

std::span<const OptionalChild> optional_children() {
  static const OptionalChild all[]{
      {pod_monitors_resource, "metrics.podMonitor", "podMonitor", "the Prometheus operator", "podMonitors.enabled",
       [](const Spec& spec) { return spec.pod_monitor; },
       [](const Owner& owner, const Spec&, const Snapshot&, const Settings&) { return pod_monitor(owner); }},
      {network_policies_resource, "networkPolicy", "networkPolicy", "networking.k8s.io/v1", "networkPolicies.enabled",
       [](const Spec& spec) { return spec.isolation.has_value(); },
       [](const Owner& owner, const Spec& spec, const Snapshot&, const Settings& settings) {
         return network_policy(owner, spec, settings);
       }},
      {inference_pools_resource, "router.inferencePool", "inferencePool", "the inference extension of the Gateway API",
       "gatewayApi.enabled", [](const Spec& spec) { return spec.endpoint_picker.has_value(); },
       [](const Owner& owner, const Spec& spec, const Snapshot&, const Settings&) {
         return inference_pool(owner, spec);
       }},
      {http_routes_resource, "router.httpRoute", "httpRoute", "the Gateway API", "gatewayApi.enabled",
       [](const Spec& spec) { return spec.route.has_value(); },
       [](const Owner& owner, const Spec& spec, const Snapshot& snapshot, const Settings&) {
         return http_route(owner, spec, snapshot);
       }}};
  return all;
}

const OptionalChild* optional_child(const k8s::Resource& resource) {
  const auto all = optional_children();
  const auto found = std::ranges::find(all, resource.kind, [](const OptionalChild& one) { return one.resource.kind; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace pm::op
