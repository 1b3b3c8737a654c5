// Puts the kernels to work on CUDA tensors, in programs that this file is linked into (preset cuda).
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include "worker/ops/cuda/backend.h"

namespace pm::ops::cuda {

namespace {

int processors(at::Device device) {
  int count = 1;
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device.index());
  return count;
}

[[maybe_unused]] const bool registered = [] {
  static const Kernels kernels({.address = [](const void* address) { return const_cast<void*>(address); },
                                .stream = [](at::Device device) -> Stream { return c10::cuda::getCurrentCUDAStream(device.index()).stream(); },
                                .processors = &processors, .matrix_units = true});
  use_backend(at::DeviceType::CUDA, kernels);
  return true;
}();

}  // namespace

}  // namespace pm::ops::cuda
