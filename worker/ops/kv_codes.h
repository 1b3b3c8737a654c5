// SPDX-License-Identifier: Apache-2.0
// Keys and values of a KV cache as integers of eight bits (I8). Each token has one scale for the key, and one for the
// value, of each kv head, so that what it becomes depends on no other token and on no other head.
#pragma once
#include <ATen/core/Tensor.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "contract/kv_block.h"

namespace pm::ops {

/// Returns whether a cache holds codes. It is then int8 [blocks, kv_heads, 16, d + kv_scale_bytes] and contiguous. Each
/// block of a head has the codes [16, d] of its tokens, and behind them their scales [16] in F32. An element is its
/// code times its scale.
inline bool holds_codes(const at::Tensor& cache) { return cache.scalar_type() == at::kChar; }

/// Returns d, the size of a key or value in a cache [blocks, kv_heads, 16, d], or of codes.
inline int64_t head_dim(const at::Tensor& cache) { return cache.size(3) - (holds_codes(cache) ? kv_scale_bytes : 0); }

/// Writes x [tokens, kv_heads, d], of any float type, to its slots [tokens] in a cache of codes. A vector's scale is
/// its largest magnitude / 127, and a code is element / scale, rounded half to even; where the scale is 0, codes are 0.
/// A vector that has an infinity or a NaN becomes NaNs.
void write_codes(const at::Tensor& x, const at::Tensor& slots, at::Tensor& cache);

/// Returns what blocks of codes hold, fp32: [blocks, kv_heads, 16, d + kv_scale_bytes] -> [blocks, kv_heads, 16,
/// d].
at::Tensor decoded(const at::Tensor& blocks);

/// Writes one vector as token `row` of a head's block, as write_codes() does. It is inline for the threads that make
/// keys on their way into the cache.
inline void write_vector(const float* x, int64_t d, int8_t* block, int64_t row) {
  float largest = 0;
  bool is_finite = true;
  for (int64_t i = 0; i < d; ++i) {
    const float magnitude = std::abs(x[i]);
    is_finite = is_finite && magnitude <= 3.402823466e38f;
    largest = magnitude > largest ? magnitude : largest;
  }
  const float scale = is_finite ? largest / 127 : NAN;
  std::memcpy(block + block_tokens * d + row * kv_scale_bytes, &scale, kv_scale_bytes);
  int8_t* codes = block + row * d;
  if (!(scale > 0)) {
    std::memset(codes, 0, static_cast<size_t>(d));
    return;
  }
  constexpr float round = 0x1.8p23f;  // a sum with it has no fraction, and is rounded half to even
  for (int64_t i = 0; i < d; ++i) {
    const float code = x[i] / scale + round - round;
    codes[i] = static_cast<int8_t>(code > 127 ? 127.f : code < -127 ? -127.f : code);
  }
}

/// The same for a cache of floats, whose block holds [16, d].
template <typename T>
inline void write_vector(const float* x, int64_t d, T* block, int64_t row) {
  for (int64_t i = 0; i < d; ++i) block[row * d + i] = static_cast<T>(x[i]);
}

}  // namespace pm::ops
