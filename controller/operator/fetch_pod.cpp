// The pod that downloads a checkpoint from the hub before any device is taken, and the claim that it fills.
#include "controller/core/quantity.h"
#include "controller/operator/hash.h"
#include "controller/operator/pod_parts.h"

namespace pm::op {

Json fetch_pod(const Owner& owner, const Spec& spec, const Settings& settings, const std::string& commit) {
  const HubSource& hub = *spec.source.hub;
  Json pod = base_pod(owner, spec, settings, fetch_pod_name(owner.key.name), "fetch", image_of(spec, settings));
  const std::string token = mount_token(pod, spec);
  Json& container = pod["spec"]["containers"][0];
  container["args"] = {"fetch", "--model", "hf://" + hub.id, "--revision", commit, "--cache", model_path, "--ops-port", std::to_string(ops_port), "--termination-message", "/dev/termination-log"};
  if (!token.empty()) container["args"].insert(container["args"].end(), {"--token-file", token});
  container["ports"] = Json::array({{{"name", "ops"}, {"containerPort", ops_port}}});
  container["env"].push_back({{"name", "NVIDIA_VISIBLE_DEVICES"}, {"value", "void"}});
  container["resources"] = {{"requests", {{"cpu", "100m"}, {"memory", "128Mi"}}}, {"limits", {{"memory", "2Gi"}}}};
  pod["spec"]["terminationGracePeriodSeconds"] = 10;
  pod["metadata"]["annotations"][annotation::source] = source_hash(spec, owner, "");
  pod["metadata"]["labels"][label::pod_hash] = hash_of(pod["spec"]);
  return pod;
}

Json cache_claim(const Owner& owner, const Spec& spec, const Facts& facts, int nodes_per_group) {
  constexpr int64_t gib = int64_t{1} << 30;
  const HubSource& hub = *spec.source.hub;
  const int64_t planned = (facts.checkpoint_bytes + facts.checkpoint_bytes / 10 + 2 * gib - 1) / gib * gib;
  const std::string mode = !hub.access_mode.empty() ? hub.access_mode : nodes_per_group > 1 || spec.replicas > 1 ? "ReadWriteMany" : "ReadWriteOnce";
  Json metadata = child_metadata(owner, spec.source.claim, "cache");
  if (hub.retain) metadata.erase("ownerReferences");
  Json claim{{"apiVersion", "v1"}, {"kind", "PersistentVolumeClaim"}, {"metadata", std::move(metadata)},
             {"spec", {{"accessModes", Json::array({mode})}, {"resources", {{"requests", {{"storage", k8s::format_bytes(hub.size.value_or(planned))}}}}}}}};
  if (!hub.storage_class.empty()) claim["spec"]["storageClassName"] = hub.storage_class;
  return claim;
}

}  // namespace pm::op
