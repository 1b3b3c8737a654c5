// SPDX-License-Identifier: Apache-2.0
#include "controller/plugin/dry_run.h"

#include "controller/operator/api/names.h"
#include "controller/operator/api/object_text.h"
#include "controller/operator/api/spec.h"
#include "controller/operator/children/desired.h"
#include "controller/operator/planning/hardware.h"

namespace pm::plugin {
namespace {

using k8s::Json;
using op::at;

std::string refusal_text(const Refusal& refusal) {
  std::string out = name_of(refusal.reason) + ": " + refusal.message + "\n";
  for (const Rejected& one : refusal.rejected)
    out += "not " + one.strategy + " (" + one.reason + "): " + one.message + "\n";
  return out;
}

/// Returns the device inventory where the plan needs it and all of it could be read.
std::optional<op::DeviceInventory> inventory_for(const op::Spec& spec, const op::Snapshot& snapshot, const Read& read) {
  if (!op::needs_inventory(spec, snapshot)) return std::nullopt;
  op::DeviceInventory inventory;
  while (!inventory.complete) {
    const auto response = read(op::next_request(spec, inventory));
    if (!response) return std::nullopt;
    op::add_response(spec, *response, inventory);
  }
  return inventory;
}

/// Returns the fields of a spec that name a checkpoint.
std::vector<Json> checkpoint_of(const Json& model) {
  return {at(model, "/spec/model/source"),    at(model, "/spec/model/revision"), at(model, "/spec/model/path"),
          at(model, "/spec/model/policyRef"), at(model, "/spec/model/adapters"), at(model, "/spec/model/draft")};
}

}  // namespace

DryRun dry_run(const Json& model, const ModelMetadata& metadata, const std::vector<k8s::ObjectPtr>& nodes,
               const Read& read) {
  const op::Spec spec = op::parse_spec(model);
  op::Snapshot snapshot;
  snapshot.nodes = nodes;
  const auto hardware = op::hardware_of(spec, snapshot, inventory_for(spec, snapshot, read));
  if (const auto* refusal = std::get_if<Refusal>(&hardware)) return {false, refusal_text(*refusal)};
  const Decision decision = decide(metadata, std::get<Hardware>(hardware), op::planner_constraints(spec));
  if (!decision.plan)
    return {false, decision.refusal ? refusal_text(*decision.refusal) : "the planner gave no reason\n"};
  return {true, describe(*decision.plan)};
}

std::optional<ModelMetadata> known_metadata(const Json& model, const Json& models, const Json& config_maps) {
  for (const Json& other : at(models, "/items")) {
    if (checkpoint_of(other) != checkpoint_of(model)) continue;
    const std::string map = op::plan_name(k8s::key_of(other).name, k8s::string_at(other, "/status/plan/planHash"));
    for (const Json& found : at(config_maps, "/items")) {
      if (k8s::key_of(found).name == map) return op::stored_metadata(found);
    }
  }
  return std::nullopt;
}

}  // namespace pm::plugin
