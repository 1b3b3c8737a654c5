// SPDX-License-Identifier: Apache-2.0
// Declares what the planner reads of devices that drivers publish in ResourceSlices (dynamic resource allocation). They
// are listed when a plan needs them, and never watched (docs/design/decisions/021).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "controller/operator/api/spec.h"
#include "controller/operator/observed/snapshot.h"

namespace pm::op {

/// A DeviceClass and the ResourceSlices, as the API server returned them in this reconcile.
struct DeviceInventory {
  std::string device_class;            ///< "": none offers the extended resource of the spec
  std::vector<std::string> selectors;  ///< CEL of the DeviceClass
  std::string unknown;                 ///< why the devices are not known; "" if they are
  std::vector<Json> slices;            ///< their spec
  std::string next_page;               ///< the continue token of the list of slices
  bool class_read = false, complete = false;
};

/// Returns true when the memory of a device follows from ResourceSlices: GPUs without devices.memory, by a claim, or by
/// an extended resource that no admitted node has in its status.
bool needs_inventory(const Spec&, const Snapshot&);
/// Returns the next request for an inventory that is not complete: the DeviceClass that the spec names, or all of them,
/// and then each page of ResourceSlices.
k8s::Request next_request(const Spec&, const DeviceInventory&);
/// Adds the response to next_request(). An API that is absent or forbidden completes the inventory, as `unknown` says.
/// Other errors are not for this function.
void add_response(const Spec&, const k8s::Response&, DeviceInventory&);

/// The devices on admitted nodes that a DeviceClass and the claim of a spec select.
struct SelectedDevices {
  int64_t count = 0;
  int64_t memory = 0;                 ///< the least capacity `memory` of any domain, in bytes; 0: none has it
  std::string product;                ///< the attribute productName, as node labels write it, if all agree
  std::vector<k8s::ObjectPtr> nodes;  ///< that hold them
};
/// Selects devices by read_terms(). A slice of the node pool counts for every admitted node. Slices of an old
/// generation of their pool are left out.
SelectedDevices select_devices(const Spec&, const Snapshot&, const DeviceInventory&);
/// Says why there is no memory of a device, for a refusal.
std::string why_memory_is_unknown(const DeviceInventory&, const SelectedDevices&);

}  // namespace pm::op
