// SPDX-License-Identifier: Apache-2.0
// The CPU kernels attend() and silu_and_mul() of kernels.h, compiled once per instruction set with PM_ISA (a namespace)
// and PM_LANES (floats of a vector).
#pragma once
#include "worker/ops/cpu/kernels/code_attention_kernel.h"
#include "worker/ops/cpu/kernels/kernels.h"
#include "worker/ops/cpu/kernels/vectors.h"

namespace pm::ops::PM_ISA {

namespace {

template <typename T>
inline float dot(const float* q, const T* key, int64_t d) {
  Floats part{};
  int64_t i = 0;
  for (; i + PM_LANES <= d; i += PM_LANES) part += load(q + i) * load(key + i);
  float total = sum(part);
  for (; i < d; ++i) total += q[i] * one(key[i]);
  return total;
}

template <typename T>
struct Query {
  const float* q;
  float operator()(const T* key, int64_t d) const { return dot(q, key, d); }
};

/// Writes the scores of the keys to `scores` and returns the largest. A masked key gets -infinity, whose exponential is
/// 0. `product` multiplies the query with a key.
template <typename T, typename Product>
inline float score(const Attend& a, Product product, const float* bias, float* scores) {
  float largest = -__builtin_inff();
  for (int64_t start = a.from; start < a.to; start += block_tokens) {
    const T* keys = static_cast<const T*>(a.keys) + a.blocks[start / block_tokens] * a.block_stride;
    const int64_t count = a.to - start < block_tokens ? a.to - start : block_tokens;
    for (int64_t t = 0; t < count; ++t) {
      const float value = product(keys + t * a.d, a.d) * a.scale + (bias ? bias[start + t] : 0.f);
      const bool seen = start + t >= a.hidden;
      scores[start - a.from + t] = seen ? value : -__builtin_inff();
      if (seen && value > largest) largest = value;
    }
  }
  return largest;
}

/// Applies the softcap to the scores and returns the largest; masked scores stay. `scores` has room for one more
/// vector.
inline float capped(float cap, float* scores, int64_t count) {
  for (int64_t i = count; i % PM_LANES != 0; ++i) scores[i] = -__builtin_inff();
  for (int64_t i = 0; i < count; i += PM_LANES) {
    const Floats value = load(scores + i);
    put(scores + i, value < all(-1e30f) ? value : cap * tanh(value / cap));
  }
  float largest = -__builtin_inff();
  for (int64_t i = 0; i < count; ++i) largest = scores[i] > largest ? scores[i] : largest;
  return largest;
}

/// Computes columns i .. of out = sum of weight x value over the keys.
template <int Vectors, typename T>
inline void weigh(const Attend& a, const float* weights, int64_t i, float* out) {
  Floats sums[Vectors] = {};
  for (int64_t start = a.from; start < a.to; start += block_tokens) {
    const T* values = static_cast<const T*>(a.values) + a.blocks[start / block_tokens] * a.block_stride + i;
    const int64_t count = a.to - start < block_tokens ? a.to - start : block_tokens;
    for (int64_t t = 0; t < count; ++t) {
      const float weight = weights[start - a.from + t];
      for (int v = 0; v < Vectors; ++v) sums[v] += weight * load(values + t * a.d + v * PM_LANES);
    }
  }
  for (int v = 0; v < Vectors; ++v) put(out + i + v * PM_LANES, sums[v]);
}

template <typename T>
inline void weigh_rest(const Attend& a, const float* weights, int64_t i, float* out) {
  for (; i < a.d; ++i) {
    float total = 0;
    for (int64_t key = a.from; key < a.to; ++key) {
      total += weights[key - a.from] *
               one(static_cast<const T*>(
                   a.values)[a.blocks[key / block_tokens] * a.block_stride + key % block_tokens * a.d + i]);
    }
    out[i] = total;
  }
}

template <typename T>
inline void weigh_all(const Attend& a, const float* weights, float* out) {
  int64_t i = 0;
  for (; i + 4 * PM_LANES <= a.d; i += 4 * PM_LANES) weigh<4, T>(a, weights, i, out);
  for (; i + PM_LANES <= a.d; i += PM_LANES) weigh<1, T>(a, weights, i, out);
  weigh_rest<T>(a, weights, i, out);
}

template <typename T>
void attend_typed(const Attend& a) {
  float weights[max_attend_keys + PM_LANES];
  const int64_t count = a.to - a.from;
  for (int64_t head = 0; head < a.heads; ++head) {
    const float* bias = a.bias ? a.bias + head * a.bias_stride : nullptr;
    float largest = score<T>(a, Query<T>{a.q + head * a.d}, bias, weights);
    if (a.softcap > 0) largest = capped(a.softcap, weights, count);
    for (int64_t i = count; i % PM_LANES != 0; ++i) weights[i] = -__builtin_inff();
    Floats total{};
    for (int64_t i = 0; i < count; i += PM_LANES) {
      const Floats weight = exp(load(weights + i) - largest);
      put(weights + i, weight);
      total += weight;
    }
    a.largest[head] = largest;
    a.sums[head] = sum(total);
    weigh_all<T>(a, weights, a.out + head * a.d);
  }
}

void attend(const Attend& a) {
  if (a.type == Element::F32)
    attend_typed<float>(a);
  else if (a.type == Element::F16)
    attend_typed<F16>(a);
  else if (a.type == Element::I8)
    attend_codes(a);
  else
    attend_typed<BF16>(a);
}

void silu_and_mul(const float* gate, const float* up, float* out, int64_t count) {
  int64_t i = 0;
  for (; i + PM_LANES <= count; i += PM_LANES) {
    const Floats x = load(gate + i);
    put(out + i, x / (1.f + exp(-x)) * load(up + i));
  }
  if (i == count) return;
  float rest[2][PM_LANES] = {};
  for (int64_t k = i; k < count; ++k) rest[0][k - i] = gate[k], rest[1][k - i] = up[k];
  silu_and_mul(rest[0], rest[1], rest[0], PM_LANES);
  for (int64_t k = i; k < count; ++k) out[k] = rest[0][k - i];
}

}  // namespace

}  // namespace pm::ops::PM_ISA
