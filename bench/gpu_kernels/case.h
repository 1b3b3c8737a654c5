// SPDX-License-Identifier: Apache-2.0
// The cases of the kernel benchmark: each kernel in the shapes of an 8B and a 1B model of Llama-3's form.
#pragma once
#include <string>
#include <vector>

#include "bench/gpu_kernels/array.h"

namespace pm::bench_gpu {

using ops::cuda::Stream;

/// A case with its buffers on the device.
struct Prepared {
  Launch launch;
  /// Returns the relative error of the results of a launch with set 0, over samples, against sums in fp64.
  std::function<double()> error;
  int64_t splits = 0;  ///< of decode attention; 0: has none
};

struct Case {
  std::string name;      ///< kernel, types, shape and rows; no other case has it
  double bytes = 0;      ///< that a launch has to read and write at least
  double flops = 0;      ///< additions and multiplications of a launch; 0: does not count
  double tolerance = 0;  ///< of the error
  std::function<Prepared()> prepare;
};

/// How many copies of the buffers there are: launches take them in turn, so that no launch finds in a cache of
/// `cache_bytes` what an earlier one read.
int64_t sets_for(double bytes, int64_t cache_bytes);

// Each adds the cases of some kernels. `small`: shapes for the emulation.
/// `last` gets the numbers of rows that only tell where cuBLAS becomes faster; they are measured after all others.
void add_gemv(std::vector<Case>&, std::vector<Case>& last, const Device&, bool small);
void add_attention(std::vector<Case>&, const Device&, bool small);
void add_row_kernels(std::vector<Case>&, const Device&, bool small);  ///< norm, activation, rotary embedding
void add_sample(std::vector<Case>&, const Device&, bool small);

}  // namespace pm::bench_gpu
