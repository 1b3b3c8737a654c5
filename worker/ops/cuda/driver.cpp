// SPDX-License-Identifier: Apache-2.0
// The CUDA driver queries, in programs that this file is linked into (preset cuda).
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>

#include <algorithm>

#include "worker/ops/device_memory.h"

namespace pm::ops::cuda {

namespace {

class CudaDriver final : public Driver {
 public:
  /// Destroys the context that the query created: cudaMemGetInfo needs one, which takes some hundred MiB of the device.
  MemoryInfo memory_info(at::Device device) const override {
    const bool used = c10::cuda::hasPrimaryContext(device.index());
    size_t free = 0, total = 0;
    const c10::DeviceGuard here(device);
    if (used) c10::cuda::CUDACachingAllocator::emptyCache();  // cached memory of a model that was unloaded
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    if (!used) C10_CUDA_CHECK(cudaDeviceReset());
    return {static_cast<int64_t>(total), static_cast<int64_t>(free)};
  }
  /// Spells the product name as GPU feature discovery labels nodes: spaces become dashes.
  std::string product(at::Device device) const override {
    cudaDeviceProp properties{};
    C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device.index()));
    std::string name = properties.name;
    std::replace(name.begin(), name.end(), ' ', '-');
    return name;
  }
  bool set_memory_limit(at::Device device, int64_t bytes) const override {
    const auto total = static_cast<double>(device_memory(device).total);
    c10::cuda::CUDACachingAllocator::setMemoryFraction(std::clamp(static_cast<double>(bytes) / total, 0.0, 1.0),
                                                       device.index());
    return true;
  }
  /// Allocates exactly `bytes`; ATen's own allocator rounds up to a power of two, which wastes much for whole layers.
  at::Tensor pinned(int64_t bytes) const override {
    const auto options = at::TensorOptions(at::kByte);
    if (bytes == 0) return at::empty({0}, options);
    void* data = nullptr;
    C10_CUDA_CHECK(cudaHostAlloc(&data, static_cast<size_t>(bytes), cudaHostAllocDefault));
    return at::from_blob(data, {bytes}, [](void* given) { cudaFreeHost(given); }, options);
  }
};

[[maybe_unused]] const bool registered = [] {
  static const CudaDriver driver;
  register_driver(at::DeviceType::CUDA, driver);
  return true;
}();

}  // namespace

}  // namespace pm::ops::cuda
