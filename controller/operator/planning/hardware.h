// SPDX-License-Identifier: Apache-2.0
// Declares how the hardware and the constraints of the planner follow from a spec and the nodes.
#pragma once
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "controller/operator/api/spec.h"
#include "controller/operator/observed/snapshot.h"
#include "controller/operator/planning/device_inventory.h"
#include "planner/plan.h"

namespace pm::op {

/// Returns the hardware for the planner, or the refusal DeviceMemoryUnknown, or DoesNotFit for devices that pods share
/// and others have filled (refuse_shares). The memory of a device is the first of:
/// 1. spec.devices.memory;
/// 2. GPU of ResourceSlices: the smallest capacity that `inventory` selects, else that of the product table for the
///    attribute productName;
/// 3. GPU: the smallest node label nvidia.com/gpu.memory (MiB) of the admitted nodes, else that of the product table
/// for
///    the label nvidia.com/gpu.product; of a device that pods share, a share of it;
/// 4. CPU: an equal share of spec.resources.memory, else of half the largest admitted node.
/// Bandwidths, operations and latencies come from the node labels parallelmodel.dev/{memory-gigabytes-per-second,
/// teraflops, link-gigabytes-per-second, link-microseconds}, as the minimum over the admitted nodes with the label. The
/// planner has defaults for those without a label.
/// `inventory` is nullopt where needs_inventory() is false, or where nobody read it.
std::variant<Hardware, Refusal> hardware_of(const Spec&, const Snapshot&,
                                            const std::optional<DeviceInventory>& inventory = std::nullopt);

PlanConstraints planner_constraints(const Spec&);

/// Returns the nodes that the node selector of the spec admits.
std::vector<k8s::ObjectPtr> admitted_nodes(const Spec&, const Snapshot&);
/// Returns the admitted nodes that have devices.resource in their status; all admitted nodes without a resource.
std::vector<k8s::ObjectPtr> device_nodes(const Spec&, const Snapshot&);
/// Names the admitted node with the most free devices, as in "free 2 of 4 on node-a". It counts only devices that pods
/// of ParallelModels hold.
std::string free_devices(const Spec&, const Snapshot&);

}  // namespace pm::op
