// The only home of facts and plan. A plan is kept until the wishes change: neither capacity nor a newer operator replans a running group.
#include <stdexcept>

#include "controller/operator/desired.h"
#include "controller/operator/hash.h"

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

Json plan_config_map(const Owner& owner, const Spec& spec, const Facts& facts, const Plan& plan, const std::string& image, const std::optional<Policy>& policy) {
  const Json facts_json = to_json(facts), plan_json = to_json(plan);
  const std::string copy = policy ? policy->copy : "";
  Json contents{{"facts", facts_json}, {"plan", plan_json}};
  if (policy) contents["policy"] = copy;
  const std::string name = plan_name(owner.key.name, hash_of(contents));
  Json metadata = child_metadata(owner, name, "plan");
  metadata["annotations"] = {{annotation::source, source_hash(spec, owner, copy)}, {annotation::inputs, inputs_hash(spec, owner, copy)}};
  if (policy) metadata["annotations"][annotation::policy] = copy;
  Json data{{"facts.json", facts_json.dump()}, {"plan.json", plan_json.dump()}, {"image", image}};
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
  const Facts facts = stored_facts(config_map);
  return {name, dash == std::string::npos ? name : name.substr(dash + 1), k8s::string_at(config_map, "/data/image"),
          policy_from_text(k8s::string_at(config_map, "/data/policy")), facts.task, facts.architecture, facts.revision, plan_from_json(parsed(config_map, "plan.json"))};
}

Facts stored_facts(const Json& config_map) { return facts_from_json(parsed(config_map, "facts.json")); }

}  // namespace pm::op
