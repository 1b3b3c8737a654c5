// SPDX-License-Identifier: Apache-2.0
// Builds the PodGroup by which Kubernetes' scheduler places all pods of a replica or none (docs/design/decisions/017).
#include "controller/core/object.h"
#include "controller/operator/children/desired.h"

namespace pm::op {

Json pod_group(const std::string& name, const std::vector<k8s::ObjectPtr>& pods) {
  const Json& first = *pods.front();
  Json owners = Json::array(), labels = Json::object();
  for (const auto& pod : pods)
    owners.push_back(
        {{"apiVersion", "v1"}, {"kind", "Pod"}, {"name", k8s::key_of(*pod).name}, {"uid", k8s::uid_of(*pod)}});
  for (const std::string& key : {label::name, label::replica, label::replica_generation})
    labels[key] = k8s::label_of(first, key);
  return {{"apiVersion", k8s::api_version_of(pod_group_resources.front())},
          {"kind", pod_group_resources.front().kind},
          {"metadata",
           {{"name", name},
            {"namespace", k8s::key_of(first).ns},
            {"labels", std::move(labels)},
            {"ownerReferences", std::move(owners)}}},
          {"spec", {{"schedulingPolicy", {{"gang", {{"minCount", pods.size()}}}}}}}};
}

}  // namespace pm::op
