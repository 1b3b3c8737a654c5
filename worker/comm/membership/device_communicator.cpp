// SPDX-License-Identifier: Apache-2.0
#include "worker/comm/membership/device_communicator.h"

#include <array>

#include "worker/base/error.h"

namespace pm::comm {
namespace {

DeviceCommunicatorFactory& of(at::DeviceType type) {
  static std::array<DeviceCommunicatorFactory, static_cast<size_t>(at::COMPILE_TIME_MAX_DEVICE_TYPES)> all{};
  return all.at(static_cast<size_t>(type));
}

}  // namespace

void register_device_communicator(at::DeviceType type, DeviceCommunicatorFactory join) { of(type) = join; }

std::shared_ptr<Communicator> device_communicator(const DeviceGroup& group) {
  const DeviceCommunicatorFactory join = of(group.device.type());
  if (join == nullptr)
    throw Error(Reason::UnsupportedDevice,
                "ranks as processes on " + group.device.str() +
                    ": this program has no library of collectives for such devices; generate and forward run "
                    "ranks as threads of one process");
  return join(group);
}

}  // namespace pm::comm
