// SPDX-License-Identifier: Apache-2.0
// Registers and makes the communicator of ranks that are processes with a device each. A program links one library of
// collectives per kind of device: NCCL for CUDA.
#pragma once
#include <c10/core/Device.h>

#include <chrono>
#include <memory>

#include "worker/comm/communicator.h"
#include "worker/comm/shared_memory/segment.h"

namespace pm::comm {

/// Arguments of the device communicator of one rank.
struct DeviceGroup {
  std::shared_ptr<Communicator> host;  ///< communicator of the same ranks for CPU tensors and for the join
  std::shared_ptr<Segment> segment;    ///< segment of the node of this rank; aborting it aborts every rank
  at::Device device = at::kCPU;        ///< device of this rank
  std::chrono::milliseconds deadline{30'000};
};

using DeviceCommunicatorFactory = std::shared_ptr<Communicator> (*)(const DeviceGroup&);

/// Registers the factory of one kind of device. Must be called before groups are made.
void register_device_communicator(at::DeviceType, DeviceCommunicatorFactory);
/// Makes the communicator of a group on devices. Throws Error{UnsupportedDevice} when this program has no
/// library for the device type.
std::shared_ptr<Communicator> device_communicator(const DeviceGroup&);

}  // namespace pm::comm
