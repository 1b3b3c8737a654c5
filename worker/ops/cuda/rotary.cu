// SPDX-License-Identifier: Apache-2.0
// Rotary kernels: a warp for each vector of a head.
#include "worker/ops/cuda/device.cuh"
#include "worker/ops/cuda/rotary.h"

namespace pm::ops::cuda {

namespace {

constexpr int threads = 128, warps = threads / 32;

__global__ void __launch_bounds__(threads) angles_kernel(RotaryAngles p) {
  begin_after_previous();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= p.tokens * p.n) return;
  const float turn = static_cast<float>(p.positions[i / p.n]) * p.frequencies[i % p.n];
  p.cos[i] = cosf(turn) * p.factor;
  p.sin[i] = sinf(turn) * p.factor;
}

/// A head's vector after its norm; all lanes of a warp compute the statistics together. Without norms it is the vector
/// itself.
template <typename T, bool Norms>
struct Normed {
  const T* from;
  HeadNorm norm;
  float mean = 0, scale = 1;

  __device__ __forceinline__ Normed(const T* given, const HeadNorm& how, int64_t d) : from(given), norm(how) {
    if (!Norms || !norm.active) return;
    float total = 0, square = 0;
    if (!norm.rms) {
      for (int64_t i = threadIdx.x % 32; i < d; i += 32) total += widened(from[i]);
      mean = warp_sum(total) / static_cast<float>(d);
    }
    for (int64_t i = threadIdx.x % 32; i < d; i += 32) square += (widened(from[i]) - mean) * (widened(from[i]) - mean);
    scale = 1.f / sqrtf(warp_sum(square) / static_cast<float>(d) + norm.eps);
  }
  __device__ __forceinline__ float operator[](int64_t i) const {
    float value = widened(from[i]);
    if (!Norms || !norm.active) return value;
    value = (value - mean) * scale;
    if (norm.weight) value *= norm.weight_offset + element_at(norm.weight, norm.parameters, i);
    if (norm.bias) value += element_at(norm.bias, norm.parameters, i);
    return value;
  }
};

template <typename T, typename C, bool Norms>
__global__ void __launch_bounds__(threads) rotary_kernel(RotaryWrite p) {
  begin_after_previous();
  const int64_t vectors = p.heads + 2 * p.kv_heads,
                number = static_cast<int64_t>(blockIdx.x) * warps + threadIdx.x / 32;
  if (number >= p.tokens * vectors) return;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int64_t token = number / vectors, head = number % vectors;
  const bool query = head < p.heads, value = head >= p.heads + p.kv_heads;
  const Normed<T, Norms> from(static_cast<const T*>(p.qkv) + token * p.qkv_stride + head * p.d,
                              query   ? p.query_norm
                              : value ? HeadNorm{}
                                      : p.key_norm,
                              p.d);
  T* to = nullptr;
  C* place = nullptr;
  if (query) {
    if (!p.q) return;
    to = static_cast<T*>(p.q) + (token * p.heads + head) * p.d;
  } else {
    const int64_t slot = p.slots[token];
    if (slot < 0) return;
    const int64_t of_cache = head - p.heads - (value ? p.kv_heads : 0);
    place = static_cast<C*>(value ? p.v_cache : p.k_cache) + slot / block_tokens * p.block_stride +
            (of_cache * block_tokens + slot % block_tokens) * p.d;
  }
  const auto put = [&](int64_t i, float x) {
    if (query)
      to[i] = narrowed<T>(x);
    else
      place[i] = narrowed<C>(x);
  };
  const int64_t n = value && !p.rotate_values ? 0 : p.n;
  const float *cos = p.cos + token * p.n, *sin = p.sin + token * p.n;
  for (int64_t i = lane; i < n; i += 32) {
    const int64_t a = p.is_neox ? i : 2 * i, b = p.is_neox ? n + i : 2 * i + 1;
    const float x = from[a], y = from[b];
    put(a, x * cos[i] - y * sin[i]);
    put(b, y * cos[i] + x * sin[i]);
  }
  for (int64_t i = 2 * n + lane; i < p.d; i += 32) put(i, from[i]);
}

}  // namespace

void rotary_angles(const RotaryAngles& p, Stream stream) {
  const int64_t all = p.tokens * p.n;
  if (all == 0) return;
  PM_LAUNCH(angles_kernel, static_cast<unsigned>((all + threads - 1) / threads), threads, 0, stream)(p);
  check_launch("rotary_angles");
}

void rotary_write(const RotaryWrite& p, Stream stream) {
  require(2 * p.n <= p.d, "rotary_write", std::to_string(p.n) + " pairs do not fit in heads of " + std::to_string(p.d));
  require(p.kv_heads == 0 || (p.slots && p.k_cache && p.v_cache), "rotary_write",
          "keys and values need slots and caches");
  require(p.cache == Element::F32 || p.cache == p.type || p.type == Element::F32, "rotary_write",
          "fp16 does not go into a bf16 cache, nor bf16 into fp16");
  const int64_t all = p.tokens * (p.heads + 2 * p.kv_heads);
  if (all == 0) return;
  with_float(p.type, "rotary_write", [&](auto* t) {
    with_float(p.cache, "rotary_write", [&](auto* c) {
      using T = std::remove_pointer_t<decltype(t)>;
      using C = std::remove_pointer_t<decltype(c)>;
      if constexpr (std::is_same_v<C, T> || std::is_same_v<T, float> || std::is_same_v<C, float>) {
        auto* kernel =
            p.query_norm.active || p.key_norm.active ? &rotary_kernel<T, C, true> : &rotary_kernel<T, C, false>;
        PM_LAUNCH(kernel, static_cast<unsigned>((all + warps - 1) / warps), threads, 0, stream)(p);
      }
    });
  });
  check_launch("rotary_write");
}

}  // namespace pm::ops::cuda
