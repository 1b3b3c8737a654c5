// SPDX-License-Identifier: Apache-2.0
// Writes the status of a pod as kubelets do, for the parts of FakeCluster.
#pragma once
#include <string>

#include "controller/core/conditions.h"
#include "controller/operator/api/object_text.h"
#include "fake_cluster.h"

namespace pm::op::test {

inline bool ended(const Json& pod) { return at(pod, "/status/containerStatuses/0/state/terminated").is_object(); }
inline bool running(const Json& pod) { return at(pod, "/status/containerStatuses/0/state/running").is_object(); }

inline void set_container(Json& pod, Json state) {
  pod["status"]["containerStatuses"] = Json::array({{{"name", "worker"}, {"state", std::move(state)}}});
}

inline void set_condition(Json& pod, const char* type, bool value, k8s::WallTime now, const std::string& reason = "",
                          const std::string& message = "") {
  k8s::set_condition(pod["status"]["conditions"], {type, value, reason, message, 0}, now);
}

}  // namespace pm::op::test
