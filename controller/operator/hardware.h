// What the planner may use, and where each figure comes from.
#pragma once
#include <variant>

#include "controller/operator/snapshot.h"
#include "controller/operator/spec.h"
#include "planner/plan.h"

namespace pm::op {

/// Memory of a device, by the first of: spec.devices.memory; GPU: the smallest node label nvidia.com/gpu.memory (MiB) of the nodes that the
/// selector admits, else the product table's by the label nvidia.com/gpu.product; CPU: an equal share of spec.resources.memory, else of half the largest such node. A refusal DeviceMemoryUnknown when
/// there is none of these. Bandwidths, operations and latencies are those of the labels parallelmodel.dev/{memory-gigabytes-per-second, teraflops,
/// link-gigabytes-per-second, link-microseconds} of these nodes, of the slowest that tells; the planner fills in what no label tells.
std::variant<Hardware, Refusal> hardware_of(const Spec&, const Snapshot&);

Wishes wishes_of(const Spec&);

/// Nodes that the spec's node selector admits.
std::vector<k8s::ObjectPtr> admitted_nodes(const Spec&, const Snapshot&);
/// "free 2 of 4 on node-a", or that no admitted node offers the resource: the admitted node with most free devices of the spec's resource, as far as pods of ParallelModels hold them.
std::string free_devices(const Spec&, const Snapshot&);

}  // namespace pm::op
