// SPDX-License-Identifier: Apache-2.0
// Activation kernels: one thread for each 16 bytes.
#include "worker/ops/cuda/activation.h"
#include "worker/ops/cuda/device.cuh"

namespace pm::ops::cuda {

namespace {

constexpr int threads = 256;

__device__ __forceinline__ float activated(Activation activation, float x) {
  switch (activation) {
    case Activation::Gelu:
      return 0.5f * x * (1.f + erff(x * 0.70710678118654752f));
    case Activation::GeluTanh:
      return 0.5f * x * (1.f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
    case Activation::QuickGelu:
      return x / (1.f + expf(-1.702f * x));
    case Activation::Relu:
      return x < 0.f ? 0.f : x;  // keeps NaN
    case Activation::Silu:
      return x / (1.f + expf(-x));
    case Activation::Tanh:
      return tanhf(x);
    default:
      return x;
  }
}

template <typename T, bool Aligned>
__global__ void __launch_bounds__(threads) activate_kernel(Activate p, int64_t loads_per_row) {
  begin_after_previous();
  const int64_t load = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x;
  const int64_t row = load / loads_per_row, column = load % loads_per_row * per_load<T>;
  if (row >= p.rows) return;
  const int count = static_cast<int>(p.width - column < per_load<T> ? p.width - column : per_load<T>);
  const T* from = static_cast<const T*>(p.x) + row * (p.gated ? 2 * p.width : p.width) + column;
  T* to = static_cast<T*>(p.y) + row * p.width + column;
  float values[per_load<T>], factors[per_load<T>];
  unpack<T>(load_16<T, Aligned>(from, count), values);
  if (p.gated) unpack<T>(load_16<T, Aligned>(from + p.width, count), factors);
#pragma unroll
  for (int i = 0; i < per_load<T>; ++i) {
    values[i] = activated(p.activation, values[i]);
    if (p.gated) values[i] *= factors[i];
  }
  store_16<T, Aligned>(to, values, count);
}

}  // namespace

void activate(const Activate& p, Stream stream) {
  if (p.rows == 0 || p.width == 0) return;
  with_float(p.type, "activate", [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    const bool aligned = p.width % per_load<T> == 0 && aligned_16(p.x) && aligned_16(p.y);
    const int64_t loads_per_row = (p.width + per_load<T> - 1) / per_load<T>;
    auto* kernel = aligned ? &activate_kernel<T, true> : &activate_kernel<T, false>;
    PM_LAUNCH(kernel, static_cast<unsigned>((p.rows * loads_per_row + threads - 1) / threads), threads, 0, stream)(
        p, loads_per_row);
  });
  check_launch("activate");
}

}  // namespace pm::ops::cuda
