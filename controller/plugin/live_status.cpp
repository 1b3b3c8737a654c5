// SPDX-License-Identifier: Apache-2.0
#include "controller/plugin/live_status.h"

#include "contract/ports.h"
#include "controller/core/object.h"
#include "controller/operator/api/object_text.h"
#include "controller/plugin/model_report.h"

namespace pm::plugin {

std::map<std::string, k8s::Json> live_statuses(const Kubectl& kubectl, const k8s::Json& model) {
  std::map<std::string, k8s::Json> out;
  const k8s::Key key = k8s::key_of(model);
  const k8s::Json& replicas = op::at(model, "/status/replicaStatuses");
  if (!replicas.is_array()) return out;
  for (const k8s::Json& replica : replicas) {
    const std::string pod = first_pod(key.name, replica);
    if (pod.empty()) continue;
    try {
      k8s::Json status = k8s::Json::parse(kubectl.output({"get", "--raw",
                                                          "/api/v1/namespaces/" + key.ns + "/pods/" + pod + ":" +
                                                              std::to_string(admin_port) + "/proxy/status"},
                                                         true),
                                          nullptr, false);
      if (status.is_object()) out.emplace(pod, std::move(status));
    } catch (const KubectlFailed&) {
      continue;
    }
  }
  return out;
}

}  // namespace pm::plugin
