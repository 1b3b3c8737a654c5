// SPDX-License-Identifier: Apache-2.0
// How the outputs of a linear layer are shared out over threads, and its bias.
#pragma once
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

namespace pm::ops {

/// Splits the rows of a matrix into chunks: one large part for each thread, read as a stream, then small ones that
/// balance the threads.
struct OutputChunks {
  /// Of weights: some microseconds, far more than the cost of taking a chunk.
  static constexpr int64_t bytes = int64_t{64} << 10;

  int64_t rows, large, large_rows, small, small_rows;
  OutputChunks(int64_t all, int64_t row_bytes, int threads)
      : rows(all),
        large(0),
        large_rows(0),
        small_rows(12 * std::max<int64_t>(1, bytes / (12 * std::max<int64_t>(1, row_bytes)))) {
    if (threads > 1 && rows >= 8 * threads * small_rows) large = threads, large_rows = rows * 3 / 4 / threads / 12 * 12;
    small = (rows - large * large_rows + small_rows - 1) / small_rows;
  }
  int64_t count() const { return large + small; }
  int64_t first(int64_t chunk) const {
    return chunk < large ? chunk * large_rows : std::min(rows, large * large_rows + (chunk - large) * small_rows);
  }
};

/// Adds the bias: y[r, o] += bias[o] for o in [first, last).
template <typename T>
void add_bias(float* y, const T* bias, int64_t rows, int64_t out, int64_t first, int64_t last) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = first; o < last; ++o) y[r * out + o] += static_cast<float>(bias[o]);
  }
}

/// Likewise of any element type; an undefined bias adds nothing.
inline void add_bias(float* y, const at::Tensor& bias, int64_t rows, int64_t out, int64_t first, int64_t last) {
  if (!bias.defined()) return;
  if (bias.scalar_type() == at::kFloat)
    add_bias(y, bias.const_data_ptr<float>(), rows, out, first, last);
  else if (bias.scalar_type() == at::kHalf)
    add_bias(y, bias.const_data_ptr<at::Half>(), rows, out, first, last);
  else
    add_bias(y, bias.const_data_ptr<at::BFloat16>(), rows, out, first, last);
}

}  // namespace pm::ops
