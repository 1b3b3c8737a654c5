// SPDX-License-Identifier: Apache-2.0
// Declares objects as a real API server returns them: with defaults, statuses and managedFields.
#pragma once
#include <string>

#include "controller/core/object.h"

namespace pm::op::test {

/// Adds to an object of a FakeCluster what a real cluster adds: defaults of its kind, full statuses, uids of 36
/// characters, managedFields. `number` makes uids of different clusters differ.
k8s::Json with_server_fields(const std::string& plural, k8s::Json object, int number);
/// Returns a node as a kubelet and a device plugin describe it.
k8s::Json server_node(const std::string& name);

}  // namespace pm::op::test
