// SPDX-License-Identifier: Apache-2.0
// Registers the CUDA backend and CUDA graph capture for CUDA tensors, in programs that this file is linked into (preset
// cuda).
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

int multiprocessors(at::Device device) {
  int count = 1;
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device.index());
  return count;
}

/// A CUDA graph. All graphs of a thread share one memory pool, because no two of them run at once.
class CapturedGraph final : public Graph {
 public:
  CapturedGraph(at::Device device, const std::function<void()>& body) {
    thread_local const auto pool = at::cuda::graph_pool_handle();
    const c10::cuda::CUDAStream before = c10::cuda::getCurrentCUDAStream(device.index()),
                                own = c10::cuda::getStreamFromPool(false, device.index());
    before.synchronize();  // the inputs of the captured launches are written
    const c10::cuda::CUDAStreamGuard here(own);
    graph_.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    try {
      body();
    } catch (...) {
      try {
        graph_.capture_end();
      } catch (const std::exception&) {
      }  // the first failure is reported
      throw;
    }
    graph_.capture_end();
  }
  void replay() override { graph_.replay(); }

 private:
  at::cuda::CUDAGraph graph_;
};

[[maybe_unused]] const bool registered = [] {
  static const CudaBackend kernels(
      {.address = [](const void* address) { return const_cast<void*>(address); },
       .stream = [](at::Device device) -> Stream { return c10::cuda::getCurrentCUDAStream(device.index()).stream(); },
       .multiprocessors = &multiprocessors,
       .matrix_units = true});
  register_backend(at::DeviceType::CUDA, kernels);
  at::globalContext().setAllowTF32CuBLAS(false);  // no TF32 even where TORCH_ALLOW_TF32_CUBLAS_OVERRIDE asks for it
  register_graph_capturer(at::DeviceType::CUDA,
                          [](at::Device device, const std::function<void()>& body) -> std::unique_ptr<Graph> {
                            return std::make_unique<CapturedGraph>(device, body);
                          });
  return true;
}();

}  // namespace

}  // namespace pm::ops::cuda
