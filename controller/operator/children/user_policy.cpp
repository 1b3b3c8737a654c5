// SPDX-License-Identifier: Apache-2.0
#include "controller/operator/children/user_policy.h"

#include "base/byte_size.h"
#include "controller/core/status_error.h"
#include "controller/operator/api/object_text.h"
#include "controller/operator/api/stable_hash.h"
#include "controller/operator/children/desired.h"
#include "controller/operator/children/pod_parts.h"

namespace pm::op {

namespace {

PolicyAnswer lacking(const std::string& what) { return {std::nullopt, "", clip(what, 1000)}; }

std::string keys_of(const Json& data) {
  std::string out;
  for (const auto& [key, value] : data.items()) out += (out.empty() ? "" : ", ") + key;
  return out;
}

}  // namespace

k8s::Request get_policy(const Owner& owner, const PolicyRef& ref) {
  return {.verb = k8s::Verb::Get, .resource = k8s::config_maps_resource, .ns = owner.key.ns, .name = ref.name};
}

PolicyAnswer parse_policy(const Owner& owner, const PolicyRef& ref, const k8s::Response& response) {
  const std::string map = "ConfigMap " + ref.name;
  if (k8s::failed(response)) {
    const k8s::ApiError& error = k8s::error_of(response);
    if (error.failure != k8s::Failure::NotFound)
      return lacking(map + " of spec.model.policyRef cannot be read: " + error.message);
    return lacking(map + " of spec.model.policyRef is not in namespace " + owner.key.ns +
                   "; create it, and planning continues");
  }
  const Json& data = at(k8s::object_of(response), "/data");
  if (!data.is_object() || data.empty())
    return lacking(map + " of spec.model.policyRef holds no text; put the policy file under one of its keys");
  if (ref.key.empty() && data.size() > 1) {
    return lacking(map + " has the keys " + keys_of(data) +
                   "; set spec.model.policyRef.key to the one with the policy");
  }
  const std::string key = ref.key.empty() ? data.begin().key() : ref.key;
  if (!data.contains(key))
    return lacking(map + " has no key " + key + " (spec.model.policyRef.key); it has " + keys_of(data));
  const std::string text = data[key].is_string() ? data[key].get<std::string>() : "";
  if (text.empty()) return lacking(map + ": key " + key + " is empty; it must hold a policy file");
  if (text.size() > max_policy_bytes) {
    return lacking(map + ": key " + key + " has " + base::format_bytes(static_cast<int64_t>(text.size())) +
                   "; a policy has at most " + base::format_bytes(max_policy_bytes));
  }
  return {Policy{policy_name(owner.key.name, short_hash({{"file", key}, {"text", text}})), key}, text, ""};
}

Json policy_copy(const Owner& owner, const PolicyAnswer& answer) {
  return {{"apiVersion", "v1"},
          {"kind", "ConfigMap"},
          {"metadata", child_metadata(owner, answer.policy->copy, "policy")},
          {"immutable", true},
          {"data", {{answer.policy->file, answer.text}}}};
}

std::string to_text(const std::optional<Policy>& policy) { return policy ? policy->copy + "/" + policy->file : ""; }

std::optional<Policy> policy_from_text(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return std::nullopt;
  return Policy{text.substr(0, slash), text.substr(slash + 1)};
}

std::string path_of(const Policy& policy) { return policy_folder + "/" + policy.file; }

void mount_policy(Json& pod, const Policy& policy) {
  mount(pod, {{"name", "policy"}, {"configMap", {{"name", policy.copy}}}}, policy_folder, true);
  pod["metadata"]["annotations"][annotation::policy] = policy.copy;
}

}  // namespace pm::op
