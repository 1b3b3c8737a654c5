// SPDX-License-Identifier: Apache-2.0
// Reads what the pods of a model say themselves.
#pragma once
#include <map>
#include <string>

#include "controller/plugin/kubectl.h"

namespace pm::plugin {

/// Returns the /status of the first pod of each replica by pod name, through the API server's proxy, so that the pods
/// need not be reachable from here. Pods that do not answer, and all of them without the right to get pods/proxy, are
/// left out.
std::map<std::string, k8s::Json> live_statuses(const Kubectl&, const k8s::Json& model);

}  // namespace pm::plugin
