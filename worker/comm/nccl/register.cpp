// SPDX-License-Identifier: Apache-2.0
// Registers NCCL as the communicator of CUDA tensors in programs that link this file (preset cuda).
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAStream.h>

#include "worker/comm/nccl/communicator.h"

namespace pm::comm::nccl {

namespace {

[[maybe_unused]] const bool registered = [] {
  register_device_communicator(at::DeviceType::CUDA, [](const DeviceGroup& group) {
    return join(group, {.current = [](at::Device device) -> cudaStream_t {
                          return c10::cuda::getCurrentCUDAStream(device.index()).stream();
                        },
                        .capturing =
                            [](at::Device) {
                              return c10::cuda::currentStreamCaptureStatusMayInitCtx() !=
                                     c10::cuda::CaptureStatus::None;
                            }});
  });
  return true;
}();

}  // namespace

}  // namespace pm::comm::nccl
