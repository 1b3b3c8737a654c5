// SPDX-License-Identifier: Apache-2.0
// Registers the CUDA backend and CUDA graph capture for CUDA tensors, in programs that this file is linked into (preset
// cuda).
#include <ATen/Context.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include "worker/ops/cuda/backend.h"
#include "worker/ops/graph.h"

namespace pm::ops::cuda {

namespace {

class CudaGraph final : public Graph {
 public:
  /// Other threads may call what a capture must not, such as the watchdog's queries of events.
  void capture_begin(c10::MempoolId_t pool) override { graph_.capture_begin(pool, cudaStreamCaptureModeThreadLocal); }
  void capture_end() override { graph_.capture_end(); }
  void replay() override { graph_.replay(); }

 private:
  at::cuda::CUDAGraph graph_;
};

class CudaGraphDriver final : public GraphDriver {
 public:
  c10::MempoolId_t new_pool() const override { return at::cuda::graph_pool_handle(); }
  std::unique_ptr<Graph> new_graph() const override { return std::make_unique<CudaGraph>(); }
  /// Clears the error that an invalid capture leaves behind, which the next launch would report as its own.
  void end_stream_capture(const c10::Stream& stream) const noexcept override {
    const cudaStream_t captured = c10::cuda::CUDAStream(stream).stream();
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(captured, &status) == cudaSuccess && status != cudaStreamCaptureStatusNone) {
      cudaGraph_t graph = nullptr;
      cudaStreamEndCapture(captured, &graph);
      if (graph) cudaGraphDestroy(graph);
    }
    cudaGetLastError();
  }
  void end_allocate_to_pool(Allocator allocator, at::Device device, c10::MempoolId_t pool) const override {
    if (allocator == Allocator::Device) return c10::cuda::CUDACachingAllocator::endAllocateToPool(device.index(), pool);
    at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(pool);
  }
  void release_pool(Allocator allocator, at::Device device, c10::MempoolId_t pool) const override {
    if (allocator == Allocator::Device) return c10::cuda::CUDACachingAllocator::releasePool(device.index(), pool);
    at::getHostAllocator(at::kCUDA)->release_pool(pool);
  }
};

[[maybe_unused]] const bool registered = [] {
  static const CudaBackend kernels(
      {.address = [](const void* address) { return const_cast<void*>(address); },
       .stream = [](at::Device device) -> Stream { return c10::cuda::getCurrentCUDAStream(device.index()).stream(); },
       // PyTorch asks the runtime once, while layers ask here for each launch
       .multiprocessors =
           [](at::Device device) { return at::cuda::getDeviceProperties(device.index())->multiProcessorCount; },
       .compute_capability =
           [](at::Device device) {
             const cudaDeviceProp& properties = *at::cuda::getDeviceProperties(device.index());
             return 10 * properties.major + properties.minor;
           }});
  register_backend(at::DeviceType::CUDA, kernels);
  at::globalContext().setAllowTF32CuBLAS(false);  // no TF32 even where TORCH_ALLOW_TF32_CUBLAS_OVERRIDE asks for it
  // Products into 16 bits are rounded once: parts of split inputs (split-K) are added in fp32, as gemv() adds them.
  at::globalContext().setAllowFP16ReductionCuBLAS(false);
  at::globalContext().setAllowBF16ReductionCuBLAS(false);
  static const CudaGraphDriver graphs;
  register_graph_driver(at::DeviceType::CUDA, graphs);
  return true;
}();

}  // namespace

}  // namespace pm::ops::cuda
