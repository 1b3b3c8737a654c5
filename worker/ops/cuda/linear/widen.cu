// SPDX-License-Identifier: Apache-2.0
// The widening kernel: a warp widens a row, 16 bytes of results a lane at a time, so that stores fill whole sectors. It
// is bound by memory: int8 is read once, and the results are read again by the product that follows.
#include "worker/ops/cuda/linear/widen.h"

#include <limits>

#include "worker/ops/cuda/linear/quantised.cuh"

namespace pm::ops::cuda {

namespace {

constexpr int warps = 8, threads = 32 * warps;

/// Widens the int8 numbers of 16 bytes of results.
template <typename T>
__device__ __forceinline__ uint4 widened_16(const unsigned (&numbers)[per_load<T> / 4], __nv_bfloat16 scale) {
  if constexpr (sizeof(T) == 4) {
    float values[4];
    scaled_floats(numbers[0], widened(scale), values);
    return {__float_as_uint(values[0]), __float_as_uint(values[1]), __float_as_uint(values[2]),
            __float_as_uint(values[3])};
  } else {
    unsigned low[2], high[2];
    scaled_pairs<T>(numbers[0], scale, low);
    scaled_pairs<T>(numbers[1], scale, high);
    return {low[0], low[1], high[0], high[1]};
  }
}

/// Aligned: a lane's numbers are loaded at once and share a scale.
template <typename T, bool Aligned>
__global__ void __launch_bounds__(threads) widen_kernel(Widen p, Groups groups) {
  begin_after_previous();
  constexpr int chunk = per_load<T>, loads = 4;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * warps + threadIdx.x / 32;
  if (row >= p.rows) return;
  const int in = static_cast<int>(p.in), lane = static_cast<int>(threadIdx.x % 32);
  const int8_t* numbers = static_cast<const int8_t*>(p.numbers) + row * p.stride;
  const __nv_bfloat16* scales = static_cast<const __nv_bfloat16*>(p.scales) + row * p.scale_stride;
  T* out = static_cast<T*>(p.out) + row * p.in;
  if constexpr (Aligned) {
    for (int first = lane * chunk; first < in; first += 32 * chunk * loads) {
      unsigned words[loads][chunk / 4] = {};
      __nv_bfloat16 scale[loads] = {};
#pragma unroll
      for (int l = 0; l < loads; ++l) {
        const int i = first + 32 * chunk * l;
        if (i >= in) continue;
        if constexpr (chunk == 8) {
          const uint2 two = *reinterpret_cast<const uint2*>(numbers + i);
          words[l][0] = two.x, words[l][1] = two.y;
        } else {
          words[l][0] = *reinterpret_cast<const unsigned*>(numbers + i);
        }
        scale[l] = scales[groups.of_eight(i)];
      }
#pragma unroll
      for (int l = 0; l < loads; ++l) {
        const int i = first + 32 * chunk * l;
        if (i < in) *reinterpret_cast<uint4*>(out + i) = widened_16<T>(words[l], scale[l]);
      }
    }
  } else {
    for (int i = lane; i < in; i += 32) out[i] = narrowed<T>(widened(numbers[i]) * widened(scales[groups.of(i)]));
  }
}

template <typename T>
void start(const Widen& p, Stream stream) {
  constexpr int64_t chunk = per_load<T>;
  const bool aligned = p.in % chunk == 0 && p.stride % chunk == 0 &&
                       reinterpret_cast<uintptr_t>(p.numbers) % static_cast<uintptr_t>(chunk) == 0 &&
                       aligned_16(p.out) && has_even_groups(p.scale_group, p.in);
  auto* kernel = aligned ? &widen_kernel<T, true> : &widen_kernel<T, false>;
  PM_LAUNCH(kernel, static_cast<unsigned>((p.rows + warps - 1) / warps), threads, 0, stream)
  (p, groups_of(p.scale_group, p.in));
}

}  // namespace

void widen(const Widen& p, Stream stream) {
  constexpr const char* name = "widen";
  require(p.numbers_type == Element::I8, name, "numbers are int8");
  require(p.scale_group > 0, name, "groups of " + std::to_string(p.scale_group) + " inputs; at least one is needed");
  require(p.in < std::numeric_limits<int>::max() / 2, name, std::to_string(p.in) + " inputs are too many");
  if (p.rows == 0 || p.in == 0) return;
  with_float(p.out_type, name, [&](auto* t) { start<std::remove_pointer_t<decltype(t)>>(p, stream); });
  check_launch(name);
}

}  // namespace pm::ops::cuda
