// SPDX-License-Identifier: Apache-2.0
// Norm kernels: one block a row. Each thread reads only the columns that it has written itself.
#include "worker/ops/cuda/device.cuh"
#include "worker/ops/cuda/norm.h"

namespace pm::ops::cuda {

namespace {

constexpr int threads = 256, warps = threads / 32;

/// Calls f(column, values, count) for the columns of the row that belong to this thread, 16 bytes at a time.
template <typename T, bool Aligned, typename F>
__device__ __forceinline__ void each_load(const T* row, int64_t width, F&& f) {
  for (int64_t column = threadIdx.x * per_load<T>; column < width; column += threads * per_load<T>) {
    const int count = static_cast<int>(width - column < per_load<T> ? width - column : per_load<T>);
    float values[per_load<T>];
    unpack<T>(load_16<T, Aligned>(row + column, count), values);
    f(column, values, count);
  }
}

template <typename T, bool Aligned>
__global__ void __launch_bounds__(threads) norm_kernel(Norm p) {
  PM_SHARED(float, means, warps);
  PM_SHARED(float, squares, warps);
  const int64_t row = blockIdx.x;
  const T* x = static_cast<const T*>(p.x) + row * p.x_stride;
  const T* normed = p.residual ? static_cast<const T*>(p.sum) + row * p.width : x;
  float total = 0;
  if (p.residual) {
    T* sum = static_cast<T*>(p.sum) + row * p.width;
    const T* residual = static_cast<const T*>(p.residual) + row * p.width;
    each_load<T, Aligned>(x, p.width, [&](int64_t column, const float(&values)[per_load<T>], int count) {
      float more[per_load<T>], all[per_load<T>];
      unpack<T>(load_16<T, Aligned>(residual + column, count), more);
#pragma unroll
      for (int i = 0; i < per_load<T>; ++i) {
        all[i] = widened(narrowed<T>(values[i] + more[i]));
        if (i < count) total += all[i];
      }
      store_16<T, Aligned>(sum + column, all, count);
    });
  } else if (!p.rms) {
    each_load<T, Aligned>(x, p.width, [&](int64_t, const float(&values)[per_load<T>], int count) {
#pragma unroll
      for (int i = 0; i < per_load<T>; ++i) {
        if (i < count) total += values[i];
      }
    });
  }
  const float mean = p.rms ? 0.f : block_sum<warps>(total, means) / static_cast<float>(p.width);
  float square = 0;
  each_load<T, Aligned>(normed, p.width, [&](int64_t, const float(&values)[per_load<T>], int count) {
#pragma unroll
    for (int i = 0; i < per_load<T>; ++i) {
      if (i < count) square += (values[i] - mean) * (values[i] - mean);
    }
  });
  const float scale = 1.f / sqrtf(block_sum<warps>(square, squares) / static_cast<float>(p.width) + p.eps);
  T* y = static_cast<T*>(p.y) + row * p.width;
  each_load<T, Aligned>(normed, p.width, [&](int64_t column, const float(&values)[per_load<T>], int count) {
    float all[per_load<T>];
#pragma unroll
    for (int i = 0; i < per_load<T>; ++i) {
      all[i] = (values[i] - mean) * scale;
      if (i >= count) continue;
      if (p.weight) all[i] *= p.weight_offset + element_at(p.weight, p.parameters, column + i);
      if (p.bias) all[i] += element_at(p.bias, p.parameters, column + i);
    }
    store_16<T, Aligned>(y + column, all, count);
  });
}

}  // namespace

void norm(const Norm& p, Stream stream) {
  require(!p.residual || p.sum, "norm", "a residual needs memory for the sum");
  require(p.parameters != Element::I8, "norm", "weight and bias are fp32, fp16 or bf16");
  if (p.rows == 0 || p.width == 0) return;
  with_float(p.type, "norm", [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    const bool aligned = p.width % per_load<T> == 0 && p.x_stride % per_load<T> == 0 && aligned_16(p.x) &&
                         aligned_16(p.y) && aligned_16(p.residual) && aligned_16(p.sum);
    auto* kernel = aligned ? &norm_kernel<T, true> : &norm_kernel<T, false>;
    PM_LAUNCH(kernel, static_cast<unsigned>(p.rows), threads, 0, stream)(p);
  });
  check_launch("norm");
}

}  // namespace pm::ops::cuda
