// SPDX-License-Identifier: Apache-2.0
// The test device on a GPU: kernels run on the first one.
#include <cuda_runtime_api.h>

#include <stdexcept>

#include "tests/gpu/kernels/device.h"
#include "tests/gpu/kernels/present.h"

namespace pm::cuda_test {

namespace {
void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}
}  // namespace

std::string why_no_device() {
  if (!gpu_present()) return "no GPU here: no device node of one";
  int devices = 0;
  check(cudaGetDeviceCount(&devices), "there is a GPU, and cudaGetDeviceCount");
  if (devices == 0) throw std::runtime_error("there is a GPU, and the driver lists none");
  return {};
}
void* allocate(size_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes > 0 ? bytes : 1), "cudaMalloc");
  check(cudaMemset(memory, 0xFF, bytes > 0 ? bytes : 1), "cudaMemset");
  return memory;
}
void release(void* memory) { cudaFree(memory); }
void upload(void* to, const void* from, size_t bytes) {
  check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
}
void download(void* to, const void* from, size_t bytes) {
  check(cudaDeviceSynchronize(), "a kernel");
  check(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
}
void in_each_order(const std::function<void()>& f) { f(); }

}  // namespace pm::cuda_test
