// SPDX-License-Identifier: Apache-2.0
// Builds the pod that inspects a checkpoint before any device is allocated.
#include "contract/termination.h"
#include "contract/worker_arguments.h"
#include "controller/operator/api/stable_hash.h"
#include "controller/operator/children/adapters.h"
#include "controller/operator/children/pod_parts.h"

namespace pm::op {

Json inspect_pod(const Owner& owner, const Spec& spec, const Settings& settings, const std::optional<Policy>& policy) {
  Json pod = base_pod(owner, spec, settings, inspect_pod_name(owner.key.name, owner.generation), "inspect",
                      image_of(spec, settings));
  Json& container = pod["spec"]["containers"][0];
  const bool hub = spec.source.hub.has_value();
  WorkerArguments arguments(subcommand::inspect);
  arguments.add(flag::model, hub ? "hf://" + spec.source.hub->id : model_folder(spec, ""))
      .add(flag::termination_message, termination_log);
  if (hub) arguments.add(flag::revision, spec.source.hub->revision);
  if (const std::string token = mount_token(pod, spec); !token.empty()) arguments.add(flag::token_file, token);
  if (policy) {
    mount_policy(pod, *policy);
    arguments.add(flag::policy, path_of(*policy));
  }
  for (const NamedAdapter& adapter : mount_adapters(pod, spec)) arguments.add(flag::adapter, adapter);
  if (spec.serving.drafts_by_module()) arguments.add(flag::speculation, spec.serving.speculation);
  if (spec.draft) arguments.add(flag::draft_model, mount_source(pod, *spec.draft, "draft", draft_folder));
  container["args"] = arguments.list();
  container["env"].push_back({{"name", "NVIDIA_VISIBLE_DEVICES"}, {"value", "void"}});
  container["resources"] = {{"requests", {{"cpu", "100m"}, {"memory", "128Mi"}}}, {"limits", {{"memory", "2Gi"}}}};
  pod["spec"]["terminationGracePeriodSeconds"] = 5;
  Json& metadata = pod["metadata"];
  metadata["annotations"][annotation::source] = source_hash(spec, owner, policy ? policy->copy : "");
  metadata["labels"][label::pod_hash] = short_hash(pod["spec"]);
  metadata["annotations"][annotation::generation] = std::to_string(owner.generation);
  return pod;
}

}  // namespace pm::op
