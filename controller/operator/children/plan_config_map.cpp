// SPDX-License-Identifier: Apache-2.0
// Builds and parses the ConfigMap of model metadata and plan. A plan holds until the constraints of the spec change:
// neither capacity nor an operator upgrade replans a running replica.
#include <stdexcept>

#include "controller/operator/api/stable_hash.h"
#include "controller/operator/children/desired.h"

namespace pm::op {

namespace {

Json parsed(const Json& config_map, const char* key) {
  const std::string text = k8s::string_at(config_map, std::string("/data/") + key);
  Json value = Json::parse(text, nullptr, false);
  if (value.is_discarded() || !value.is_object()) {
    throw std::invalid_argument("ConfigMap " + k8s::key_of(config_map).name + ": " + key + " is not a JSON object");
  }
  return value;
}

}  // namespace

Json plan_config_map(const Owner& owner, const Spec& spec, const ModelMetadata& model_metadata, const Plan& plan,
                     const std::string& image, const std::optional<Policy>& policy) {
  const Json metadata_json = to_json(model_metadata), plan_json = to_json(plan);
  const std::string copy = policy ? policy->copy : "";
  Json contents{{"metadata", metadata_json}, {"plan", plan_json}};
  if (policy) contents["policy"] = copy;
  const std::string name = plan_name(owner.key.name, short_hash(contents));
  Json metadata = child_metadata(owner, name, "plan");
  metadata["annotations"] = {{annotation::source, source_hash(spec, owner, copy)},
                             {annotation::inputs, inputs_hash(spec, owner, copy)}};
  if (policy) metadata["annotations"][annotation::policy] = copy;
  Json data{{"metadata.json", metadata_json.dump()}, {"plan.json", plan_json.dump()}, {"image", image}};
  if (policy) data["policy"] = to_text(policy);
  return {{"apiVersion", "v1"},
          {"kind", "ConfigMap"},
          {"metadata", std::move(metadata)},
          {"immutable", true},
          {"data", std::move(data)}};
}

StoredPlan stored_plan(const Json& config_map) {
  const std::string name = k8s::key_of(config_map).name;
  const size_t dash = name.rfind('-');
  const ModelMetadata model_metadata = stored_metadata(config_map);
  return {name,
          dash == std::string::npos ? name : name.substr(dash + 1),
          k8s::string_at(config_map, "/data/image"),
          policy_from_text(k8s::string_at(config_map, "/data/policy")),
          model_metadata.task,
          model_metadata.architecture,
          model_metadata.revision,
          plan_from_json(parsed(config_map, "plan.json"))};
}

ModelMetadata stored_metadata(const Json& config_map) {
  return metadata_from_json(parsed(config_map, "metadata.json"));
}

}  // namespace pm::op
