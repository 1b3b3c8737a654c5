// The pod that looks at a checkpoint before any device is taken.
#include "controller/operator/hash.h"
#include "controller/operator/pod_parts.h"

namespace pm::op {

Json inspect_pod(const Owner& owner, const Spec& spec, const Settings& settings, const std::optional<Policy>& policy) {
  Json pod = base_pod(owner, spec, settings, inspect_pod_name(owner.key.name, owner.generation), "inspect", image_of(spec, settings));
  Json& container = pod["spec"]["containers"][0];
  const bool hub = spec.source.hub.has_value();
  container["args"] = {"inspect", "--model", hub ? "hf://" + spec.source.hub->id : model_folder(spec, ""), "--termination-message", "/dev/termination-log"};
  if (hub) container["args"].insert(container["args"].end(), {"--revision", spec.source.hub->revision});
  if (const std::string token = mount_token(pod, spec); !token.empty()) container["args"].insert(container["args"].end(), {"--token-file", token});
  if (policy) {
    mount_policy(pod, *policy);
    container["args"].insert(container["args"].end(), {"--policy", path_of(*policy)});
  }
  container["env"].push_back({{"name", "NVIDIA_VISIBLE_DEVICES"}, {"value", "void"}});
  container["resources"] = {{"requests", {{"cpu", "100m"}, {"memory", "128Mi"}}}, {"limits", {{"memory", "2Gi"}}}};
  pod["spec"]["terminationGracePeriodSeconds"] = 5;
  Json& metadata = pod["metadata"];
  metadata["annotations"][annotation::source] = source_hash(spec, owner, policy ? policy->copy : "");
  metadata["labels"][label::pod_hash] = hash_of(pod["spec"]);
  metadata["annotations"][annotation::generation] = std::to_string(owner.generation);
  return pod;
}

}  // namespace pm::op
