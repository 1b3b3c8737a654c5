// Objects as an API server shows them: with the fields that it, the scheduler and kubelets fill in, and who owns which field.
#pragma once
#include <string>

#include "controller/core/object.h"

namespace pm::op::test {

/// `object` of a FakeCluster as a real cluster would list it: defaults of its kind, statuses at length, uids of 36 characters, managedFields.
/// `number` makes uids of different clusters differ.
k8s::Json served(const std::string& plural, k8s::Json object, int number);
/// A node as a kubelet and a device plugin describe it.
k8s::Json served_node(const std::string& name);

}  // namespace pm::op::test
