// Puts the kernels to work on CUDA tensors, in programs that this file is linked into (preset cuda).
#include <ATen/Context.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include "worker/ops/cuda/backend.h"
#include "worker/ops/graph.h"

namespace pm::ops::cuda {

namespace {

int processors(at::Device device) {
  int count = 1;
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device.index());
  return count;
}

/// The allocator keeps a pool for what graphs allocate, one for all of a thread's: no two of them run at once.
class CapturedGraph final : public Graph {
 public:
  CapturedGraph(at::Device device, const std::function<void()>& body) {
    thread_local const auto pool = at::cuda::graph_pool_handle();
    const c10::cuda::CUDAStream before = c10::cuda::getCurrentCUDAStream(device.index()), own = c10::cuda::getStreamFromPool(false, device.index());
    before.synchronize();   // what the recorded launches read has been written
    const c10::cuda::CUDAStreamGuard here(own);
    graph_.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    try {
      body();
    } catch (...) {
      try { graph_.capture_end(); } catch (const std::exception&) {}   // the first failure is the one to tell
      throw;
    }
    graph_.capture_end();
  }
  void replay() override { graph_.replay(); }

 private:
  at::cuda::CUDAGraph graph_;
};

[[maybe_unused]] const bool registered = [] {
  static const Kernels kernels({.address = [](const void* address) { return const_cast<void*>(address); },
                                .stream = [](at::Device device) -> Stream { return c10::cuda::getCurrentCUDAStream(device.index()).stream(); },
                                .processors = &processors, .matrix_units = true});
  use_backend(at::DeviceType::CUDA, kernels);
  at::globalContext().setAllowTF32CuBLAS(false);   // fp32 is fp32, also where TORCH_ALLOW_TF32_CUBLAS_OVERRIDE asks for TF32
  use_recorder(at::DeviceType::CUDA, [](at::Device device, const std::function<void()>& body) -> std::unique_ptr<Graph> { return std::make_unique<CapturedGraph>(device, body); });
  return true;
}();

}  // namespace

}  // namespace pm::ops::cuda
