// SPDX-License-Identifier: Apache-2.0
// The inputs of the builders of children, and the pods that they make.
#pragma once
#include "controller/operator/children/desired.h"
#include "planner/model_metadata.h"
#include "tests/unit/controller/operator/simulator/fake_cluster.h"

namespace pm::op::test {

inline Json owned_model(int devices = 2, int replicas = 1) {
  Json model = model_named("m", devices, replicas);
  model["metadata"]["uid"] = "uid-1";
  model["metadata"]["generation"] = 3;
  return model;
}

/// The inputs of a builder for `ranks` CPU ranks over `nodes` nodes.
struct Made {
  explicit Made(const Json& model, int nodes = 1, const std::optional<Policy>& policy = std::nullopt)
      : spec(parse_spec(model)), owner(parse_owner(model)), nodes(nodes) {
    const ModelMetadata metadata = metadata_from_json(small_metadata());
    Hardware hardware{.kind = spec.devices.kind, .devices = spec.devices.count, .device_memory = int64_t{2} << 30};
    const Decision decision = decide(metadata, hardware, {.max_sequence_length = 256, .max_concurrency = 4});
    if (!decision.plan) throw std::logic_error(decision.refusal->message);
    stored = stored_plan(plan_config_map(owner, spec, metadata, *decision.plan, "parallelmodel-worker:1", policy));
    spec.devices.per_node = (spec.devices.count + nodes - 1) / nodes;
    layout = make_pod_layout(spec, stored.plan);
  }
  Spec spec;
  Owner owner;
  int nodes;
  StoredPlan stored;
  PodLayout layout;
  Settings worker = settings();
  PodInputs inputs() const { return {owner, spec, stored, layout, worker}; }
  Json pod(int replica = 0, int node = 0, int64_t replica_generation = 1) const {
    return replica_pod(inputs(), replica, node, replica_generation, "hash");
  }
};

}  // namespace pm::op::test
