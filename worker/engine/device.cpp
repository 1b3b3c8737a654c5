// See device.h.
#include "worker/engine/device.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include "worker/base/error.h"

namespace pm::engine {

at::DeviceType device_type(const std::string& name) {
  std::optional<at::Device> device;
  try {
    device.emplace(name);
  } catch (const c10::Error&) {   // a name that ATen does not know
  }
  if (device && device->is_cpu()) return at::kCPU;
  if (!device || device->has_index() || !c10::impl::hasDeviceGuardImpl(device->type())) {
    throw Error(ErrorKind::Usage, "NoDevice", "--device " + name + ": this worker was built without it; it knows cpu, and cuda when it is built with the preset cuda");
  }
  if (c10::impl::getDeviceGuardImpl(device->type())->deviceCount() == 0) {
    throw Error(ErrorKind::Usage, "NoDevice", "--device " + name + ": this host shows none to this process; look for its driver, and at the resources of the pod");
  }
  return device->type();
}

at::Device device_of(at::DeviceType type, int rank) {
  if (type == at::kCPU) return at::kCPU;
  return {type, static_cast<c10::DeviceIndex>(rank % c10::impl::getDeviceGuardImpl(type)->deviceCount())};
}

}  // namespace pm::engine
