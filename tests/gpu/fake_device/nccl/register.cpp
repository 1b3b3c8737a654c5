// SPDX-License-Identifier: Apache-2.0
// Registers the NCCL communicator for fake devices, over the substitute library beside this file.
#include <ATen/ATen.h>

#include "tests/gpu/fake_device/graphs.h"
#include "tests/gpu/fake_device/streams.h"
#include "worker/comm/nccl/communicator.h"

namespace pm::fake_device {

namespace {

[[maybe_unused]] const bool registered = [] {
  comm::register_device_communicator(at::DeviceType::PrivateUse1, [](const comm::DeviceGroup& group) {
    return comm::nccl::join(group, {.current =
                                        [](at::Device device) {
                                          return reinterpret_cast<cudaStream_t>(const_cast<c10::Stream*>(
                                              Streams::instance().handle(Streams::instance().current(device))));
                                        },
                                    .capturing = [](at::Device) { return capture != nullptr; }});
  });
  return true;
}();

}  // namespace

}  // namespace pm::fake_device
