// Lets ranks as processes exchange tensors of pretended devices by the library beside this, through the communicator that serves CUDA with NCCL.
#include <ATen/ATen.h>

#include "tests/pretend/device.h"
#include "tests/pretend/streams.h"
#include "worker/comm/nccl/communicator.h"

namespace pm::pretend {

namespace {

[[maybe_unused]] const bool registered = [] {
  comm::use_devices(at::DeviceType::PrivateUse1, [](const comm::DeviceGroup& group) {
    return comm::nccl::join(group, {.current = [](at::Device device) { return reinterpret_cast<cudaStream_t>(const_cast<c10::Stream*>(Streams::instance().handle(Streams::instance().current(device)))); }, .capturing = [](at::Device) { return recording != nullptr; }});
  });
  return true;
}();

}  // namespace

}  // namespace pm::pretend
