// SPDX-License-Identifier: Apache-2.0
// Mounts the LoRA adapters of a spec.
#include "controller/operator/children/adapters.h"

#include "controller/operator/children/pod_parts.h"

namespace pm::op {

std::vector<NamedAdapter> mount_adapters(Json& pod, const Spec& spec) {
  std::vector<NamedAdapter> out;
  for (size_t i = 0; i < spec.adapters.size(); ++i) {
    const auto& [name, source] = spec.adapters[i];
    const std::string number = std::to_string(i);
    out.push_back({name, mount_source(pod, source, "adapters-" + number, adapters_folder + "/" + number)});
  }
  return out;
}

}  // namespace pm::op
