// SPDX-License-Identifier: Apache-2.0
// Norm kernels: one block a row. Each thread reads only the columns that it has written itself.
#include "worker/ops/cuda/device.cuh"
#include "worker/ops/cuda/norm.h"

namespace pm::ops::cuda {

namespace {

constexpr int threads = 256, warps = threads / 32;

/// Calls f(column, values, count) for the columns of the row that belong to this thread, 16 bytes at a time. Aligned
/// rows have whole loads only.
template <typename T, bool Aligned, typename F>
__device__ __forceinline__ void each_load(const T* row, int64_t width, F&& f) {
  for (int64_t column = threadIdx.x * per_load<T>; column < width; column += threads * per_load<T>) {
    const int count =
        Aligned ? per_load<T> : static_cast<int>(width - column < per_load<T> ? width - column : per_load<T>);
    float values[per_load<T>];
    unpack<T>(load_16<T, Aligned>(row + column, count), values);
    f(column, values, count);
  }
}

/// Loads `count` of N elements as fp32, where `Aligned` in loads of 8 or 16 bytes; the others are not changed then.
template <typename P, bool Aligned, int N>
__device__ __forceinline__ void load_parameters(const P* from, int count, float (&values)[N]) {
  if constexpr (!Aligned) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i < count) values[i] = widened(from[i]);
    }
  } else if constexpr (N < per_load<P>) {  // four of a 16-bit type beside 16 bytes of fp32
    static_assert(2 * N == per_load<P>);
    const uint2 half = *reinterpret_cast<const uint2*>(from);
    float all[per_load<P>];
    unpack<P>(uint4{half.x, half.y, 0, 0}, all);
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = all[i];
  } else {
#pragma unroll
    for (int part = 0; part < N; part += per_load<P>) {
      float some[per_load<P>];
      unpack<P>(*reinterpret_cast<const uint4*>(from + part), some);
#pragma unroll
      for (int i = 0; i < per_load<P>; ++i) values[part + i] = some[i];
    }
  }
}

/// T: type of the rows; P: type of weight and bias.
template <typename T, typename P, bool Aligned>
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
    float all[per_load<T>], parameters[per_load<T>] = {};
#pragma unroll
    for (int i = 0; i < per_load<T>; ++i) all[i] = (values[i] - mean) * scale;
    if (p.weight) {
      load_parameters<P, Aligned>(static_cast<const P*>(p.weight) + column, count, parameters);
#pragma unroll
      for (int i = 0; i < per_load<T>; ++i) all[i] *= p.weight_offset + parameters[i];
    }
    if (p.bias) {
      load_parameters<P, Aligned>(static_cast<const P*>(p.bias) + column, count, parameters);
#pragma unroll
      for (int i = 0; i < per_load<T>; ++i) all[i] += parameters[i];
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
                         aligned_16(p.y) && aligned_16(p.residual) && aligned_16(p.sum) && aligned_16(p.weight) &&
                         aligned_16(p.bias);
    with_float(p.parameters, "norm", [&](auto* parameters) {
      using P = std::remove_pointer_t<decltype(parameters)>;
      auto* kernel = aligned ? &norm_kernel<T, P, true> : &norm_kernel<T, P, false>;
      PM_LAUNCH(kernel, static_cast<unsigned>(p.rows), threads, 0, stream)(p);
    });
  });
  check_launch("norm");
}

}  // namespace pm::ops::cuda
