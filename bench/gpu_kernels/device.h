// SPDX-License-Identifier: Apache-2.0
// The device that the kernel benchmark runs on: a GPU (device_cuda.cpp), or the emulation on the host
// (device_emulated.cpp), whose times mean nothing and whose results are checked all the same.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "worker/ops/cuda/types.h"

namespace pm::bench_gpu {

struct Device {
  std::string name;
  int64_t multiprocessors = 1;
  int64_t cache_bytes = 0;  ///< of the last cache before memory
};

struct Timing {
  double us = 0;         ///< microseconds of a launch: the median of all replays
  double spread = 0;     ///< (slowest - fastest replay) / median
  int64_t launches = 0;  ///< launches in a replay
};

/// Launches once with the buffers of a set; sets are numbered from 0 and wrap around.
using Launch = std::function<void(int64_t set, ops::cuda::Stream)>;

/// Returns why nothing can be measured here; empty: the device answers. Throws std::runtime_error where there is a GPU
/// that cannot be used.
std::string why_no_device();
Device device();
/// Throws std::runtime_error when the device has no such memory.
std::shared_ptr<void> allocate(int64_t bytes);
/// Copies in any direction and waits.
void copy_memory(void* to, const void* from, int64_t bytes);
/// Fills memory with 0xFF: floats that are not written stay NaN.
void poison(void* memory, int64_t bytes);
/// Launches once with set 0 and waits. Throws std::runtime_error when the kernel failed.
void run(const Launch&);
/// Measures launches in a CUDA graph, 10 replays after a warm-up, by events on the device. Throws as run() does.
Timing measure(const Launch&);
/// Returns the bytes per second, read and written, of a copy on the device.
double copy_rate(int64_t bytes);

}  // namespace pm::bench_gpu
