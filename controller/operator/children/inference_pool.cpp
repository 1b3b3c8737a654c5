// SPDX-License-Identifier: Apache-2.0
// Builds the InferencePool, by which endpoint pickers and gateways choose a replica for each request.
#include "contract/ports.h"
#include "controller/core/object.h"
#include "controller/operator/children/desired.h"

namespace pm::op {

Json inference_pool(const Owner& owner, const Spec& spec) {
  const EndpointPicker picker = spec.endpoint_picker.value_or(EndpointPicker{});
  return {{"apiVersion", k8s::api_version_of(inference_pools_resource)},
          {"kind", inference_pools_resource.kind},
          {"metadata", child_metadata(owner, owner.key.name, "pool")},
          {"spec",
           {{"selector",
             {{"matchLabels", {{label::name, owner.key.name}, {label::role, "worker"}, {label::node_rank, "0"}}}}},
            {"targetPorts", Json::array({{{"number", http_port}}})},
            {"endpointPickerRef",
             {{"group", ""},
              {"kind", "Service"},
              {"name", picker.name},
              {"port", {{"number", picker.port}}},
              {"failureMode", picker.failure_mode}}}}}};
}

}  // namespace pm::op
