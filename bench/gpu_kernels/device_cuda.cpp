// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "bench/gpu_kernels/device.h"
#include "tests/gpu/kernels/present.h"

namespace pm::bench_gpu {

namespace {

constexpr int warm_launches = 20, replays = 10, max_launches = 50;
constexpr double replay_us = 2000;  // long enough that the events' own time does not count

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

/// A stream, two events and a captured graph, released together.
struct Clock {
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;

  Clock() {
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    check(cudaEventCreate(&begin), "cudaEventCreate");
    check(cudaEventCreate(&end), "cudaEventCreate");
  }
  ~Clock() {
    if (exec) cudaGraphExecDestroy(exec);
    if (graph) cudaGraphDestroy(graph);
    if (end) cudaEventDestroy(end);
    if (begin) cudaEventDestroy(begin);
    if (stream) cudaStreamDestroy(stream);
  }
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;

  /// Returns the microseconds of what `work` queues.
  double microseconds(const std::function<void()>& work) {
    check(cudaEventRecord(begin, stream), "cudaEventRecord");
    work();
    check(cudaEventRecord(end, stream), "cudaEventRecord");
    check(cudaEventSynchronize(end), "a kernel");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
    return 1000 * static_cast<double>(milliseconds);
  }
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

std::string why_no_device() {
  if (!cuda_test::gpu_present()) return "no GPU here: no device node of one";
  int devices = 0;
  check(cudaGetDeviceCount(&devices), "there is a GPU, and cudaGetDeviceCount");
  if (devices == 0) throw std::runtime_error("there is a GPU, and the driver lists none");
  return {};
}

Device device() {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  return {.name = properties.name,
          .multiprocessors = properties.multiProcessorCount,
          .cache_bytes = properties.l2CacheSize};
}

std::shared_ptr<void> allocate(int64_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, static_cast<size_t>(std::max<int64_t>(bytes, 1))), "cudaMalloc");
  return {memory, [](void* held) { cudaFree(held); }};
}
void copy_memory(void* to, const void* from, int64_t bytes) {
  check(cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault), "cudaMemcpy");
  check(cudaDeviceSynchronize(), "cudaMemcpy");  // copies on the device return before they are done
}
void poison(void* memory, int64_t bytes) {
  check(cudaMemset(memory, 0xFF, static_cast<size_t>(bytes)), "cudaMemset");
  check(cudaDeviceSynchronize(), "cudaMemset");
}

void run(const Launch& launch) {
  launch(0, nullptr);
  check(cudaDeviceSynchronize(), "a kernel");
}

Timing measure(const Launch& launch) {
  Clock clock;
  const auto launch_all = [&](int64_t count) {
    for (int64_t i = 0; i < count; ++i) launch(i, clock.stream);
  };
  const double first = clock.microseconds([&] { launch_all(1); });
  const int64_t warm = first > replay_us ? 2 : warm_launches;
  const double warm_us = clock.microseconds([&] { launch_all(warm); }) / static_cast<double>(warm);
  Timing timing;
  timing.launches = std::clamp<int64_t>(static_cast<int64_t>(replay_us / std::max(warm_us, 0.1)), 1, max_launches);
  check(cudaStreamBeginCapture(clock.stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  launch_all(timing.launches);
  check(cudaStreamEndCapture(clock.stream, &clock.graph), "cudaStreamEndCapture");
  check(cudaGraphInstantiate(&clock.exec, clock.graph, 0), "cudaGraphInstantiate");
  const auto replay = [&] { check(cudaGraphLaunch(clock.exec, clock.stream), "cudaGraphLaunch"); };
  clock.microseconds(replay);
  std::vector<double> times(replays);
  for (double& time : times) time = clock.microseconds(replay) / static_cast<double>(timing.launches);
  timing.us = median(times);
  const auto [fastest, slowest] = std::minmax_element(times.begin(), times.end());
  timing.spread = (*slowest - *fastest) / timing.us;
  return timing;
}

double copy_rate(int64_t bytes) {
  const std::shared_ptr<void> from = allocate(bytes), to = allocate(bytes);
  poison(from.get(), bytes);
  Clock clock;
  const auto once = [&] {
    check(cudaMemcpyAsync(to.get(), from.get(), static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, clock.stream),
          "cudaMemcpyAsync");
  };
  clock.microseconds(once);
  std::vector<double> times(replays);
  for (double& time : times) time = clock.microseconds(once);
  return 2 * static_cast<double>(bytes) / median(times) * 1e6;
}

}  // namespace pm::bench_gpu
