// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstring>

#include "bench/gpu_kernels/device.h"
#include "tests/gpu/kernels/emulation/emulation.h"

namespace pm::bench_gpu {

namespace {

double microseconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

std::string why_no_device() { return {}; }
Device device() { return {.name = "the emulation on this host", .multiprocessors = 2, .cache_bytes = 1 << 12}; }

std::shared_ptr<void> allocate(int64_t bytes) {
  return {::operator new[](static_cast<size_t>(bytes)), [](void* held) { ::operator delete[](held); }};
}
void copy_memory(void* to, const void* from, int64_t bytes) { std::memcpy(to, from, static_cast<size_t>(bytes)); }
void poison(void* memory, int64_t bytes) { std::memset(memory, 0xFF, static_cast<size_t>(bytes)); }

void run(const Launch& launch) {
  emulation::seed(1);
  launch(0, nullptr);
}
/// Launches twice, with another set of buffers the second time.
Timing measure(const Launch& launch) {
  constexpr int64_t launches = 2;
  const double us = microseconds([&] {
    for (int64_t i = 0; i < launches; ++i) launch(i, nullptr);
  });
  return {.us = us / launches, .launches = launches};
}
double copy_rate(int64_t bytes) {
  const std::shared_ptr<void> from = allocate(bytes), to = allocate(bytes);
  poison(from.get(), bytes);
  return 2 * static_cast<double>(bytes) / microseconds([&] { copy_memory(to.get(), from.get(), bytes); }) * 1e6;
}

}  // namespace pm::bench_gpu
