// SPDX-License-Identifier: Apache-2.0
// The current device of each thread and the contexts of the process, by the rules of CUDA from version 12 on and of
// c10::cuda. A new thread's current device is 0. Selecting another device makes a context on it, and so does a call of
// the runtime on the device that is current then. A context takes some hundred MiB of a GPU, so a process should have
// one on its own device only.
#pragma once
#include <c10/core/Device.h>

#include <set>

namespace pm::fake_device {

/// Returns the calling thread's current device.
c10::DeviceIndex current_device();
/// Selects a device, as c10::cuda::SetDevice does.
void set_device(c10::DeviceIndex);
/// Selects a device where the process has a context on it; else the thread's next allocation or launch does. So guards
/// restore the device without making a context on it (c10::cuda::MaybeSetDevice).
void maybe_set_device(c10::DeviceIndex) noexcept;
/// Counts a call of the runtime that does not depend on a device, such as a query of an event: it makes a context on
/// the device that was selected last.
void use_runtime();
/// Counts an allocation or a launch on the current device.
void use_device();
/// Throws c10::Error unless the device is current, as a launch into a stream of another device does.
void require_current(at::Device);

bool has_context(c10::DeviceIndex);
/// Returns the devices on which the process has a context. With PM_FAKE_CONTEXTS set, each new one is reported on
/// stderr.
std::set<int> contexts();
/// Destroys a context, or all, as cudaDeviceReset() does.
void forget_context(c10::DeviceIndex);
void forget_contexts();

/// Selects a device for a scope.
class OnDevice {
 public:
  explicit OnDevice(c10::DeviceIndex device) : before_(current_device()) {
    if (device >= 0) set_device(device);
  }
  ~OnDevice() { maybe_set_device(before_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  const c10::DeviceIndex before_;
};

}  // namespace pm::fake_device
