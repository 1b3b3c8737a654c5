// SPDX-License-Identifier: Apache-2.0
// Builds the pod that downloads a checkpoint from the hub before any device is allocated, and the PVC that it fills.
#include "base/quantity.h"
#include "contract/ports.h"
#include "contract/termination.h"
#include "contract/worker_arguments.h"
#include "controller/operator/api/stable_hash.h"
#include "controller/operator/children/pod_parts.h"

namespace pm::op {

Json fetch_pod(const Owner& owner, const Spec& spec, const Settings& settings, const std::string& commit) {
  const HubSource& hub = *spec.source.hub;
  Json pod = base_pod(owner, spec, settings, fetch_pod_name(owner.key.name), "fetch", image_of(spec, settings));
  const std::string token = mount_token(pod, spec);
  Json& container = pod["spec"]["containers"][0];
  WorkerArguments arguments(subcommand::fetch);
  arguments.add(flag::model, "hf://" + hub.id)
      .add(flag::revision, commit)
      .add(flag::cache, model_path)
      .add(flag::admin_port, admin_port)
      .add(flag::termination_message, termination_log);
  if (!token.empty()) arguments.add(flag::token_file, token);
  container["args"] = arguments.list();
  container["ports"] = Json::array({{{"name", "admin"}, {"containerPort", admin_port}}});
  container["env"].push_back({{"name", "NVIDIA_VISIBLE_DEVICES"}, {"value", "void"}});
  container["resources"] = {{"requests", {{"cpu", "100m"}, {"memory", "128Mi"}}}, {"limits", {{"memory", "2Gi"}}}};
  pod["spec"]["terminationGracePeriodSeconds"] = 10;
  pod["metadata"]["annotations"][annotation::source] = source_hash(spec, owner, "");
  pod["metadata"]["labels"][label::pod_hash] = short_hash(pod["spec"]);
  return pod;
}

Json cache_claim(const Owner& owner, const Spec& spec, const ModelMetadata& model_metadata, int nodes_per_replica) {
  constexpr int64_t gib = int64_t{1} << 30;
  const HubSource& hub = *spec.source.hub;
  const int64_t planned =
      (model_metadata.checkpoint_bytes + model_metadata.checkpoint_bytes / 10 + 2 * gib - 1) / gib * gib;
  const std::string mode = !hub.access_mode.empty()                     ? hub.access_mode
                           : nodes_per_replica > 1 || spec.replicas > 1 ? "ReadWriteMany"
                                                                        : "ReadWriteOnce";
  Json metadata = child_metadata(owner, spec.source.claim, "cache");
  if (hub.retain) metadata.erase("ownerReferences");
  Json claim{{"apiVersion", "v1"},
             {"kind", "PersistentVolumeClaim"},
             {"metadata", std::move(metadata)},
             {"spec",
              {{"accessModes", Json::array({mode})},
               {"resources", {{"requests", {{"storage", base::format_quantity(hub.size.value_or(planned))}}}}}}}};
  if (!hub.storage_class.empty()) claim["spec"]["storageClassName"] = hub.storage_class;
  return claim;
}

}  // namespace pm::op
