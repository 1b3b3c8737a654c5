// SPDX-License-Identifier: Apache-2.0
// Declares the stream functions that a device communicator needs beyond what ATen offers for every device.
#pragma once
#include <c10/core/Device.h>
#include <nccl.h>

namespace pm::comm::nccl {

struct Streams {
  cudaStream_t (*current)(at::Device) = nullptr;  ///< returns the current stream of the calling thread on the device
  bool (*capturing)(at::Device) = nullptr;        ///< returns true while that stream is being captured into a graph
};

}  // namespace pm::comm::nccl
