// See devices.h.
#include "worker/comm/devices.h"

#include <array>

#include "worker/base/error.h"

namespace pm::comm {
namespace {

JoinDevices& of(at::DeviceType type) {
  static std::array<JoinDevices, static_cast<size_t>(at::COMPILE_TIME_MAX_DEVICE_TYPES)> all{};
  return all.at(static_cast<size_t>(type));
}

}  // namespace

void use_devices(at::DeviceType type, JoinDevices join) { of(type) = join; }

std::shared_ptr<Communicator> over_devices(const DeviceGroup& group) {
  const JoinDevices join = of(group.device.type());
  if (join == nullptr)
    throw Error(ErrorKind::Usage, "UnsupportedDevice", "ranks as processes on " + group.device.str() + ": this program has no library of collectives for such devices; generate and forward run "
                                                       "ranks as threads of one process");
  return join(group);
}

}  // namespace pm::comm
