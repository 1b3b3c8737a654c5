// SPDX-License-Identifier: Apache-2.0
// A plain read of memory by all threads, the limit that products with few rows are measured against.
#pragma once
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <atomic>
#include <ctime>

#include "worker/ops/cpu/thread_pool.h"

namespace pm::bench {

/// Seconds of the clock; with `processor` of CPU time of this process.
inline double now(bool processor) {
  timespec time{};
  clock_gettime(processor ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Adds up a part of a matrix, which is little more than a read.
inline uint64_t read_part(const char* data, int64_t bytes) {
  using Words = uint64_t __attribute__((vector_size(16), aligned(1), may_alias));
  Words sums[4] = {};
  for (int64_t i = 0; i + 64 <= bytes; i += 64) {
    __builtin_prefetch(data + i + 3072, 0, 2);
    const auto* line = reinterpret_cast<const Words*>(data + i);
    for (int k = 0; k < 4; ++k) sums[k] += line[k];
  }
  const Words sum = sums[0] + sums[1] + sums[2] + sums[3];
  return sum[0] + sum[1];
}

/// Reads a tensor in parallel.
inline void read_all(const at::Tensor& w) {
  static std::atomic<uint64_t> sink;
  const int64_t parts = 4 * at::get_num_threads(), bytes = static_cast<int64_t>(w.nbytes());
  pm::ops::thread_pool().parallel_for(parts, [&](int64_t i) {
    sink += read_part(static_cast<const char*>(w.const_data_ptr()) + bytes * i / parts / 64 * 64, bytes / parts);
  });
}

}  // namespace pm::bench
