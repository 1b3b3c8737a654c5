// What a communicator on devices has to know of streams beyond what ATen says of every device.
#pragma once
#include <c10/core/Device.h>
#include <nccl.h>

namespace pm::comm::nccl {

struct Streams {
  cudaStream_t (*current)(at::Device) = nullptr;   ///< what the calling thread's operations on the device are put into
  bool (*capturing)(at::Device) = nullptr;         ///< whether they are recorded into a graph instead of run
};

}  // namespace pm::comm::nccl
