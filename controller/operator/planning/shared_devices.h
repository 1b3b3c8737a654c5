// SPDX-License-Identifier: Apache-2.0
// Declares what node labels say of devices, and what pods that share a device leave of its memory.
#pragma once
#include <string>
#include <vector>

#include "controller/core/object.h"

namespace pm::op {

/// What NVIDIA's GPU feature discovery says of the devices of a node, all of one kind.
struct DeviceLabels {
  int64_t memory = 0;   ///< bytes of a whole device; 0: no label
  int shared_by = 1;    ///< pods to which the device plugin hands one device (time slices or MPS)
  std::string product;  ///< without the mark of shared devices; "": no label

  int64_t share() const { return memory / shared_by; }
};

/// Reads the labels of a resource. They are named after the resource that unshared devices have: a MIG profile or
/// nvidia.com/gpu, which is also that of resources under another name.
DeviceLabels device_labels(const k8s::Json& node, const std::string& resource);

/// The devices of a node that a pod may be handed.
struct DeviceOffer {
  std::string node;
  DeviceLabels labels;
  int64_t devices = 0;        ///< physical ones
  std::vector<int64_t> held;  ///< bytes of each rank of other ParallelModels that holds a share
};

/// Returns the bytes that a new rank finds on a device, in the worst case: the device plugin hands out the one with the
/// fewest ranks, and which ranks these are is not known.
int64_t left_of_device(const DeviceOffer&);

/// Says why a pod with this many ranks, of which each uses this much memory, may not take any of the offers; "": it
/// may.
std::string refuse_shares(const std::vector<DeviceOffer>&, int ranks, int64_t memory);

}  // namespace pm::op
