// SPDX-License-Identifier: Apache-2.0
// The CPU kernels attend() and silu_and_mul() of kernels.h, compiled once per instruction set with PM_ISA (a namespace)
// and PM_LANES (floats of a vector).
#pragma once
#include "worker/ops/cpu/kernels/code_attention_kernel.h"
#include "worker/ops/cpu/kernels/kernels.h"
#include "worker/ops/cpu/kernels/vectors.h"

namespace pm::ops::PM_ISA {

namespace {

constexpr int64_t most_heads = 8;  // that share the keys and values of a block while it is in the first-level cache
constexpr int64_t score_stride = max_attend_keys + PM_LANES;  // from head to head

template <typename T>
inline const T* block_of(const Attend& a, const void* cache, int64_t key) {
  return static_cast<const T*>(cache) + a.blocks[key / block_tokens] * a.block_stride;
}

/// Returns the block behind `start`, whose rows a kernel fetches into the caches while it reads those of this one:
/// blocks lie apart, so that the CPU does not foresee the next one, and it waits where many rows are fetched at once.
/// Behind the last block: that block.
template <typename T>
inline const T* next_block_of(const Attend& a, const void* cache, int64_t start) {
  return block_of<T>(a, cache, start + block_tokens < a.to ? start + block_tokens : start);
}

/// Returns the scores of PM_LANES keys from `key` on, -infinity where the head does not see the key, of their products
/// with its query.
inline Floats scores_from(const Attend& a, const float* bias, Floats products, int64_t key) {
  const Floats none = all(-__builtin_inff());
  Floats score = products * a.scale;
  if (a.softcap > 0) score = a.softcap * tanh(score / a.softcap);
  if (bias) score += load_some(bias + key, a.to - key);
  if (key >= a.hidden && key + PM_LANES <= a.to) return score;
  const Ints keys = lane_indices() + static_cast<int32_t>(key);
  score = keys >= static_cast<int32_t>(a.hidden) ? score : none;
  return keys < static_cast<int32_t>(a.to) ? score : none;
}

/// Writes the scores of all keys to scores [heads, score_stride], whole vectors, and the largest of each head to
/// a.largest. For each block it calls `blocks(start)`, and of what that returns `products(head, t)`, which returns the
/// products of the head's query with PM_LANES keys of the block from t on.
template <typename Blocks>
__attribute__((always_inline)) inline void score_heads(const Attend& a, Blocks blocks, float* scores) {
  Floats most[most_heads];
  for (int64_t head = 0; head < a.heads; ++head) most[head] = all(-__builtin_inff());
  for (int64_t start = a.from; start < a.to; start += block_tokens) {
    const auto block = blocks(start);
    for (int64_t head = 0; head < a.heads; ++head) {
      const float* bias = a.bias ? a.bias + head * a.bias_stride : nullptr;
      for (int64_t t = 0; t < block_tokens && start + t < a.to; t += PM_LANES) {
        const Floats score = scores_from(a, bias, block.products(head, t), start + t);
        put(scores + head * score_stride + start + t - a.from, score);
        most[head] = score > most[head] ? score : most[head];
      }
    }
  }
  for (int64_t head = 0; head < a.heads; ++head) a.largest[head] = largest_of(most[head]);
}

/// Returns the products of `count` elements of a query, fewer than a vector has, with PM_LANES rows of d elements.
template <typename T>
__attribute__((noinline)) Floats products_of_rest(const float* q, const T* keys, int64_t d, int64_t count) {
  float products[PM_LANES] = {};
  for (int t = 0; t < PM_LANES; ++t)
    for (int64_t i = 0; i < count; ++i) products[t] += q[i] * one(keys[t * d + i]);
  return load(products);
}

/// A block of keys of d elements each, and the one behind it.
template <typename T>
struct KeyBlock {
  const float* q;  ///< [heads, d]
  const T *keys, *next;
  int64_t d;
  Floats products(int64_t head, int64_t t) const {
    const float* query = q + head * d;
    return head == 0 ? products(query, keys + t * d, next + t * d) : products(query, keys + t * d);
  }
  /// Fetches the keys of `ahead`, if there are any.
  template <typename... Ahead>
  __attribute__((always_inline)) Floats products(const float* query, const T* from, Ahead... ahead) const {
    Floats parts[PM_LANES]{};
    int64_t i = 0;
    for (; i + PM_LANES <= d; i += PM_LANES) {
      const Floats some = load(query + i);
      const T* key = from + i;
#pragma GCC unroll 16
      for (int t = 0; t < PM_LANES; ++t, key += d) {
        parts[t] += some * load(key);
        (__builtin_prefetch(ahead + t * d + i), ...);
      }
    }
    const Floats sums = sums_of(parts);
    return i == d ? sums : sums + products_of_rest(query + i, from + i, d, d - i);
  }
};

inline void put_some(float* to, Floats value, int64_t count) {
  if (count >= PM_LANES)
    put(to, value);
  else
    __builtin_memcpy(to, &value, sizeof(float) * static_cast<uint64_t>(count));
}

/// Computes columns i .. of the sums of weight x value over the keys, for Heads heads; weights [heads, score_stride].
template <int Heads, int Vectors, typename T>
__attribute__((always_inline)) inline void weigh(const Attend& a, const float* weights, int64_t i, float* out) {
  Floats sums[Heads][Vectors]{};
  for (int64_t start = a.from; start < a.to; start += block_tokens) {
    const T* values = block_of<T>(a, a.values, start) + i;
    const T* next = next_block_of<T>(a, a.values, start);
    const int64_t count = a.to - start < block_tokens ? a.to - start : block_tokens;
    for (int64_t t = 0; t < count; ++t) {
      for (int64_t k = 0; i == 0 && k < a.d; k += 64 / static_cast<int64_t>(sizeof(T)))
        __builtin_prefetch(next + t * a.d + k);
      for (int v = 0; v < Vectors; ++v) {
        const Floats value = load_some(values + t * a.d + v * PM_LANES, Vectors > 1 ? PM_LANES : a.d - i);
        for (int h = 0; h < Heads; ++h) sums[h][v] += weights[h * score_stride + start - a.from + t] * value;
      }
    }
  }
  for (int h = 0; h < Heads; ++h)
    for (int v = 0; v < Vectors; ++v) put_some(out + h * a.d + i + v * PM_LANES, sums[h][v], a.d - i - v * PM_LANES);
}

/// Computes the columns from i on, Vectors vectors at a time, and then fewer.
template <int Heads, int Vectors, typename T>
__attribute__((always_inline)) inline void weigh_from(const Attend& a, const float* weights, int64_t i, float* out) {
  for (; i + Vectors * PM_LANES <= a.d; i += Vectors * PM_LANES) weigh<Heads, Vectors, T>(a, weights, i, out);
  if constexpr (Vectors > 1)
    weigh_from<Heads, Vectors / 2, T>(a, weights, i, out);
  else if (i < a.d)
    weigh<Heads, 1, T>(a, weights, i, out);
}

template <int Heads, typename T>
void weigh_heads(const Attend& a, const float* weights, float* out) {
  constexpr int together = PM_LANES < 16 ? 8 / Heads : Heads == 1 ? 8 : 16 / Heads;  // sums that registers hold
  weigh_from<Heads, together, T>(a, weights, 0, out);
}

template <typename T>
void attend_typed(const Attend& a) {
  alignas(64) float weights[most_heads * score_stride];
  const auto blocks = [&](int64_t start) {
    return KeyBlock<T>{a.q, block_of<T>(a, a.keys, start), next_block_of<T>(a, a.keys, start), a.d};
  };
  score_heads(a, blocks, weights);
  for (int64_t head = 0; head < a.heads; ++head) {
    Floats total{};
    for (int64_t i = 0; i < a.to - a.from; i += PM_LANES) {
      float* some = weights + head * score_stride + i;
      const Floats weight = exp(load(some) - a.largest[head]);
      put(some, weight);
      total += weight;
    }
    a.sums[head] = sum(total);
  }
  int64_t head = 0;
  for (; head + 4 <= a.heads; head += 4) weigh_heads<4, T>(a, weights + head * score_stride, a.out + head * a.d);
  for (; head + 2 <= a.heads; head += 2) weigh_heads<2, T>(a, weights + head * score_stride, a.out + head * a.d);
  for (; head < a.heads; ++head) weigh_heads<1, T>(a, weights + head * score_stride, a.out + head * a.d);
}

/// The kernel attend(), for at most most_heads heads.
void attend_heads(const Attend& a) {
  if (a.type == Element::F32)
    attend_typed<float>(a);
  else if (a.type == Element::F16)
    attend_typed<F16>(a);
  else
    attend_typed<BF16>(a);
}

/// Calls `attend_some` for at most most_heads heads at a time.
template <typename AttendSome>
inline void divide_heads(const Attend& a, AttendSome attend_some) {
  for (int64_t first = 0; first < a.heads; first += most_heads) {
    Attend some = a;
    some.heads = a.heads - first < most_heads ? a.heads - first : most_heads;
    some.q += first * a.d;
    some.out += first * a.d;
    some.largest += first;
    some.sums += first;
    if (a.bias) some.bias += first * a.bias_stride;
    attend_some(some);
  }
}

void attend(const Attend& a) {
  if (a.type == Element::I8)
    attend_codes(a);
  else
    divide_heads(a, attend_heads);
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
