// SPDX-License-Identifier: Apache-2.0
// Mounts the LoRA adapters of a spec.
#include "controller/operator/children/adapters.h"

#include "controller/operator/api/object_text.h"
#include "controller/operator/children/pod_parts.h"

namespace pm::op {

namespace {

/// Returns where the pod mounts the volume of the source, or "". A pod names each PVC once, whatever reads it.
std::string mounted(const Json& pod, const Source& source) {
  for (const Json& volume : pod["spec"]["volumes"]) {
    const bool same = source.image.empty() ? k8s::string_at(volume, "/persistentVolumeClaim/claimName") == source.claim
                                           : k8s::string_at(volume, "/image/reference") == source.image;
    if (!same) continue;
    for (const Json& seen : pod["spec"]["containers"][0]["volumeMounts"])
      if (seen["name"] == volume["name"]) return seen["mountPath"].get<std::string>();
  }
  return "";
}

Json volume_of(const Source& source, const std::string& name) {
  if (!source.image.empty())
    return {{"name", name}, {"image", {{"reference", source.image}, {"pullPolicy", "IfNotPresent"}}}};
  return {{"name", name}, {"persistentVolumeClaim", {{"claimName", source.claim}, {"readOnly", true}}}};
}

}  // namespace

std::vector<NamedAdapter> mount_adapters(Json& pod, const Spec& spec) {
  std::vector<NamedAdapter> out;
  for (size_t i = 0; i < spec.adapters.size(); ++i) {
    const auto& [name, source] = spec.adapters[i];
    std::string folder = mounted(pod, source);
    if (folder.empty()) {
      folder = adapters_folder + "/" + std::to_string(i);
      mount(pod, volume_of(source, "adapters-" + std::to_string(i)), folder, true);
    }
    out.push_back({name, source.path.empty() ? folder : folder + "/" + source.path});
  }
  return out;
}

}  // namespace pm::op
