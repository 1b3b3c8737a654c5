// How ranks that are processes exchange tensors on devices of their own memory: by a library of collectives, which a program brings with it for one kind of device. NCCL for CUDA.
#pragma once
#include <c10/core/Device.h>

#include <chrono>
#include <memory>

#include "worker/comm/communicator.h"
#include "worker/comm/segment.h"

namespace pm::comm {

/// One rank's way to the devices of the others.
struct DeviceGroup {
  std::shared_ptr<Communicator> host;    ///< of the same ranks: tensors of the processor go there, and what ranks tell each other to begin with
  std::shared_ptr<Segment> segment;      ///< of this rank's node; its abort is every rank's
  at::Device device = at::kCPU;          ///< this rank's
  std::chrono::milliseconds deadline{30'000};
};

using JoinDevices = std::shared_ptr<Communicator> (*)(const DeviceGroup&);

/// Called once per kind of device, before there are groups.
void use_devices(at::DeviceType, JoinDevices);
/// The communicator of a group on devices. Throws Error{Usage, "UnsupportedDevice"} when this program brought no library for them.
std::shared_ptr<Communicator> over_devices(const DeviceGroup&);

}  // namespace pm::comm
