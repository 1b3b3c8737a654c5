// SPDX-License-Identifier: Apache-2.0
// Kueue's labels and annotations on the pods of a replica, which it admits together (docs/design/decisions/016).
#include "controller/operator/children/pod_parts.h"

namespace pm::op {

namespace {

constexpr const char *priority_class = "kueue.x-k8s.io/priority-class", *managed = "kueue.x-k8s.io/managed",
                     *group_size = "kueue.x-k8s.io/pod-group-total-count",
                     *serving = "kueue.x-k8s.io/pod-group-serving", *parent = "kueue.x-k8s.io/pod-suspending-parent",
                     *gate = "kueue.x-k8s.io/admission";

}  // namespace

void enter_queue(Json& pod, const Spec& spec, const std::string& group, int pods) {
  const Scheduling& wanted = spec.scheduling;
  if (wanted.queue.empty()) return;
  Json &labels = pod["metadata"]["labels"], &annotations = pod["metadata"]["annotations"];
  labels[managed] = "true";
  labels[label::queue_name] = wanted.queue;
  labels[label::queue_group] = group;
  if (!wanted.queue_priority.empty()) labels[priority_class] = wanted.queue_priority;
  annotations[group_size] = std::to_string(pods);
  annotations[serving] = "true";
  annotations[parent] = "parallelmodel";
  pod["spec"]["schedulingGates"] = Json::array({{{"name", gate}}});
}

}  // namespace pm::op
