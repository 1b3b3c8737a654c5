// SPDX-License-Identifier: Apache-2.0
// The kernel attend() of kernels.h for keys and values as codes of eight bits (worker/ops/kv_codes.h), in fp32: q .
// (code x scale) is scale times q . code, and the scales of values are multiplied with the weights of their keys. Many
// heads share codes that are widened once, in the first-level cache; a few heads widen them in registers.
#pragma once
#include "worker/ops/cpu/kernels/kernels.h"
#include "worker/ops/cpu/kernels/vectors.h"

namespace pm::ops::PM_ISA {

namespace {

constexpr int64_t code_heads = 8;      // that share widened codes
constexpr int64_t few_heads = 3;       // for which registers are faster; measured
constexpr int64_t code_columns = 256;  // widened at once, of 16 keys: 16 KiB

inline int64_t whole_vectors(int64_t columns) { return (columns + PM_LANES - 1) / PM_LANES * PM_LANES; }
inline int64_t less(int64_t x, int64_t y) { return x < y ? x : y; }

/// Adds the products of `columns` elements of a query, whole vectors, with PM_LANES rows of keys to their scores.
template <typename T>
__attribute__((noinline)) void add_products(const float* q, const T* rows, int64_t stride, int64_t columns,
                                            float* scores) {
  Floats parts[PM_LANES]{};
  for (int64_t i = 0; i < columns; i += PM_LANES) {
    const Floats query = load(q + i);
#pragma GCC unroll 16
    for (int t = 0; t < PM_LANES; ++t) parts[t] += query * load(rows + t * stride + i);
  }
  put(scores, load(scores) + sums_of(parts));
}

/// Adds weights times `count` rows of values to Vectors vectors of a head's result.
template <int Vectors, typename T>
__attribute__((always_inline)) inline void add_vectors(const float* weights, const T* rows, int64_t stride,
                                                       int64_t count, float* out) {
  Floats total[Vectors];
  for (int v = 0; v < Vectors; ++v) total[v] = load(out + v * PM_LANES);
  for (int64_t t = 0; t < count; ++t)
    for (int v = 0; v < Vectors; ++v) total[v] += weights[t] * load(rows + t * stride + v * PM_LANES);
  for (int v = 0; v < Vectors; ++v) put(out + v * PM_LANES, total[v]);
}

/// The same for `columns` elements, whole vectors.
template <typename T>
__attribute__((noinline)) void add_values(const float* weights, const T* rows, int64_t stride, int64_t count,
                                          int64_t columns, float* out) {
  int64_t i = 0;
  for (; i + 8 * PM_LANES <= columns; i += 8 * PM_LANES) add_vectors<8>(weights, rows + i, stride, count, out + i);
  for (; i + 2 * PM_LANES <= columns; i += 2 * PM_LANES) add_vectors<2>(weights, rows + i, stride, count, out + i);
  for (; i < columns; i += PM_LANES) add_vectors<1>(weights, rows + i, stride, count, out + i);
}

/// Widens `columns` codes of `count` rows, which lie `d` apart, to rows of whole vectors.
__attribute__((noinline)) inline void widen_codes(const int8_t* codes, int64_t d, int64_t count, int64_t columns,
                                                  float* tile) {
  const int64_t width = whole_vectors(columns);
  for (int64_t t = 0; t < count; ++t)
    for (int64_t i = 0; i < columns; i += PM_LANES)
      put(tile + t * width + i, load_some(codes + t * d + i, columns - i));
}

/// Attention of at most code_heads heads to codes.
class CodeAttention {
 public:
  explicit CodeAttention(const Attend& some) : a_(some) {}

  void run() {
    const int64_t count = a_.to - a_.from;
    for (int64_t head = 0; head < a_.heads; ++head)
      for (int64_t i = 0; i < count; i += PM_LANES) put(weights_[head] + i, Floats{});
    for (int64_t first = 0; first < a_.d; first += code_columns) add_scores(first, less(code_columns, a_.d - first));
    for (int64_t start = a_.from; start < a_.to; start += block_tokens) scale_block(a_.keys, start, a_.scale);
    for (int64_t head = 0; head < a_.heads; ++head) weigh(head);
    for (int64_t start = a_.from; start < a_.to; start += block_tokens) scale_block(a_.values, start, 1);
    for (int64_t first = 0; first < a_.d; first += code_columns)
      attend_columns(first, less(code_columns, a_.d - first));
  }

 private:
  const int8_t* block(const void* cache, int64_t key) const {
    return static_cast<const int8_t*>(cache) + a_.blocks[key / block_tokens] * a_.block_stride;
  }
  int64_t keys_of_block(int64_t start) const { return less(block_tokens, a_.to - start); }
  /// Returns whether each head widens codes as it multiplies them.
  bool reads_codes(int64_t columns) const { return a_.heads <= few_heads && columns % PM_LANES == 0; }

  /// Fetches the block behind `start` into the caches: blocks lie apart, so that the CPU does not foresee the next one.
  void prefetch(const void* cache, int64_t start) const {
    if (start + block_tokens >= a_.to) return;
    const int8_t* next = block(cache, start + block_tokens);
    for (int64_t i = 0; i < block_tokens * (a_.d + kv_scale_bytes); i += 64) __builtin_prefetch(next + i);
  }

  /// Adds the products of some columns of queries and keys to the scores.
  void add_scores(int64_t first, int64_t columns) {
    const int64_t width = whole_vectors(columns);
    for (int64_t head = 0; head < a_.heads; ++head)
      for (int64_t i = 0; i < width; i += PM_LANES)
        put(rows_[head] + i, load_some(a_.q + head * a_.d + first + i, columns - i));
    for (int64_t start = a_.from; start < a_.to; start += block_tokens) {
      const int8_t* codes = block(a_.keys, start) + first;
      if (first == 0) prefetch(a_.keys, start);
      const int64_t count = keys_of_block(start);
      const bool direct = reads_codes(columns);
      if (!direct) widen_codes(codes, a_.d, count, columns, tile_);
      for (int64_t head = 0; head < a_.heads; ++head) {
        float* scores = weights_[head] + start - a_.from;
        for (int64_t t = 0; t < count; t += PM_LANES) {
          if (direct)
            add_products(rows_[head], codes + t * a_.d, a_.d, width, scores + t);
          else
            add_products(rows_[head], tile_ + t * width, width, width, scores + t);
        }
      }
    }
  }

  /// Multiplies scores, or weights, of a block by the scales of its keys, or values.
  void scale_block(const void* cache, int64_t start, float scale) {
    const int8_t* scales = block(cache, start) + block_tokens * a_.d;
    for (int64_t t = 0; t < keys_of_block(start); t += PM_LANES) {
      const Floats own = at<Floats>(scales + t * kv_scale_bytes) * scale;
      for (int64_t head = 0; head < a_.heads; ++head) {
        float* of_head = weights_[head] + start - a_.from + t;
        put(of_head, load(of_head) * own);
      }
    }
  }

  /// Turns the scores of a head into weights; those of masked keys become 0.
  void weigh(int64_t head) {
    const float none = -__builtin_inff();
    const int64_t count = a_.to - a_.from;
    float* scores = weights_[head];
    if (a_.bias) {
      const float* bias = a_.bias + head * a_.bias_stride + a_.from;
      for (int64_t i = 0; i < count; i += PM_LANES) put(scores + i, load(scores + i) + load_some(bias + i, count - i));
    }
    if (a_.softcap > 0)
      for (int64_t i = 0; i < count; i += PM_LANES) put(scores + i, a_.softcap * tanh(load(scores + i) / a_.softcap));
    for (int64_t i = 0; i < a_.hidden - a_.from; ++i) scores[i] = none;
    for (int64_t i = count; i % PM_LANES != 0; ++i) scores[i] = none;
    Floats most = load(scores);
    for (int64_t i = PM_LANES; i < count; i += PM_LANES) {
      const Floats score = load(scores + i);
      most = score > most ? score : most;
    }
    const float largest = largest_of(most);
    Floats total{};
    for (int64_t i = 0; i < count; i += PM_LANES) {
      const Floats weight = exp(load(scores + i) - largest);
      put(scores + i, weight);
      total += weight;
    }
    a_.largest[head] = largest;
    a_.sums[head] = sum(total);
  }

  /// Computes some columns of the results.
  void attend_columns(int64_t first, int64_t columns) {
    const int64_t width = whole_vectors(columns);
    const bool direct = reads_codes(columns);
    for (int64_t head = 0; head < a_.heads; ++head)
      for (int64_t i = 0; i < width; i += PM_LANES) put(rows_[head] + i, Floats{});
    for (int64_t start = a_.from; start < a_.to; start += block_tokens) {
      const int8_t* codes = block(a_.values, start) + first;
      if (first == 0) prefetch(a_.values, start);
      const int64_t count = keys_of_block(start);
      if (!direct) widen_codes(codes, a_.d, count, columns, tile_);
      for (int64_t head = 0; head < a_.heads; ++head) {
        const float* weights = weights_[head] + start - a_.from;
        if (direct)
          add_values(weights, codes, a_.d, count, width, rows_[head]);
        else
          add_values(weights, tile_, width, count, width, rows_[head]);
      }
    }
    for (int64_t head = 0; head < a_.heads; ++head)
      __builtin_memcpy(a_.out + head * a_.d + first, rows_[head], sizeof(float) * static_cast<uint64_t>(columns));
  }

  const Attend a_;
  alignas(64) float tile_[block_tokens * code_columns];                ///< widened codes
  alignas(64) float weights_[code_heads][max_attend_keys + PM_LANES];  ///< scores first
  alignas(64) float rows_[code_heads][code_columns];                   ///< of queries, then of results
};

void attend_codes(const Attend& a) {
  for (int64_t first = 0; first < a.heads; first += code_heads) {
    Attend some = a;
    some.heads = less(code_heads, a.heads - first);
    some.q += first * a.d;
    some.out += first * a.d;
    some.largest += first;
    some.sums += first;
    if (a.bias) some.bias += first * a.bias_stride;
    CodeAttention(some).run();
  }
}

}  // namespace

}  // namespace pm::ops::PM_ISA
