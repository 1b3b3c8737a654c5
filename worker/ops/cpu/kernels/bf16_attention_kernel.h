// SPDX-License-Identifier: Apache-2.0
// The kernels attend(), pack_keys() and attend_rows() of kernels.h on CPUs whose vector units multiply bf16 numbers,
// for keys and values in bf16, and as codes in models that compute in bf16. Queries and weights are rounded to bf16,
// and sums are fp32. Weights are relative to a power of two rather than to the largest score, so that their rounding
// does not depend on the keys that are seen together: one query and many have the same operands. Their sum is that of
// the rounded ones. Codes enter as bf16 numbers, which are exact: scores are multiplied by the scales of keys, and
// weights by those of values before they are rounded; their sum is that of the weights themselves.
#pragma once
#include "worker/ops/cpu/kernels/attention_kernel.h"
#include "worker/ops/cpu/kernels/prefill_kernel.h"

namespace pm::ops::PM_ISA {

namespace {

constexpr int64_t most_numbers = 1024;  // of a query; longer ones take the other kernels

template <int Number>
struct Count {
  static constexpr int count = Number;
};

/// Returns whether the kernels here take keys and values of this type in a model that computes in bf16 or not. With
/// three numbers or fewer there is no room for the scales of codes (scales_of()).
inline bool has_pairs(Element type, bool bf16, int64_t d) {
  return d <= most_numbers && (type == Element::BF16 || (type == Element::I8 && bf16 && d > 3));
}

/// Rounds 16 numbers to bf16.
inline void put_rounded(uint16_t* to, Floats value) {
  const __m256bh rounded = _mm512_cvtneps_pbh(reinterpret_cast<__m512>(value));
  __builtin_memcpy(to, &rounded, sizeof rounded);
}

/// Rounds a query and pads it with zeros to whole vectors of 32 numbers.
inline void round_query(const float* q, int64_t d, uint16_t* to) {
  for (int64_t i = 0; i < (d + 31) / 32 * 32; i += PM_LANES)
    put_rounded(to + i, i < d ? load_some(q + i, d - i) : Floats{});
}

/// Loads 32 bf16 numbers, of which `count` exist.
inline __m512bh load_pairs(const uint16_t* from, int64_t count) {
  if (count >= 32) return at<__m512bh>(from);
  uint16_t some[32] = {};
  for (int64_t i = 0; i < count; ++i) some[i] = from[i];
  return at<__m512bh>(some);
}

inline Floats add_pairs(Floats sums, __m512bh a, __m512bh b) {
  return reinterpret_cast<Floats>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(sums), a, b));
}

/// Returns two bf16 numbers in all lanes.
inline __m512bh all_pairs(const uint16_t* from) {
  int32_t pair;
  __builtin_memcpy(&pair, from, sizeof pair);
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
}

/// Returns the exponent n of the power of two that scores up to this one are relative to, and its logarithm.
inline float power_above(float score) { return __builtin_ceilf(score * log2_of_e); }
inline float score_of(float power) { return power * ln_of_2; }
inline float power_of(float score) { return __builtin_rintf(score * log2_of_e); }  // of what score_of() returned

/// Computes 2^-power e^score, of scores up to score_of(power): rounded alike whatever the power. Numbers below 2^-126
/// are 0.
inline Floats weight_of(Floats score, float power) {
  const Floats least = all(-1e6f);
  const auto [significand, times] = exponential(score > least ? score : least);
  const Ints exponent = __builtin_convertvector(times - power, Ints) + 127;
  const Floats weight = significand * reinterpret_cast<Floats>(exponent << 23);
  return exponent > 0 ? weight : score == score ? Floats{} : score;  // NaN stays
}

/// Returns 32 codes in bf16, which holds them exactly; of `count` codes, the rest is 0.
inline __m512bh load_pairs(const int8_t* codes, int64_t count) {
  const Floats first = load_some(codes, count),
               second = count > PM_LANES ? load_some(codes + PM_LANES, count - PM_LANES) : Floats{};
  return _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(second), reinterpret_cast<__m512>(first));
}
inline __m512bh load_pairs(const BF16* from, int64_t count) {
  return load_pairs(reinterpret_cast<const uint16_t*>(from), count);
}

/// Returns where the scales of a span's keys, or values, as codes lie behind them: `words` numbers of 32 bits hold
/// pairs, and take half of them.
inline float* scales_of(float* packed, int64_t words) { return packed + (words - 1) * span_keys; }
inline const float* scales_of(const float* packed, int64_t words) { return packed + (words - 1) * span_keys; }

inline void pack_scales(const KeyRows& rows, int64_t from, int64_t count, float* to) {
  for (int64_t j = 0; j < span_keys; ++j) {
    to[j] = 0;
    if (j >= count) continue;
    const int8_t* block =
        static_cast<const int8_t*>(rows.first) + rows.blocks[(from + j) / block_tokens] * rows.block_stride;
    to[j] = at<float>(block + block_tokens * rows.d + (from + j) % block_tokens * kv_scale_bytes);
  }
}

/// Keys become [pairs of numbers][span_keys][2], values [pairs of keys][packed_width(d)][2].
template <typename T>
void pack_pairs(const PackKeys& p) {
  for (int64_t j = 0; j < p.count; j += PM_LANES) {
    for (int64_t i = 0; i < p.keys.d; i += 2 * PM_LANES) {
      Words block[PM_LANES]{};
      for (int64_t k = 0; k < PM_LANES && j + k < p.count; ++k)
        block[k] = reinterpret_cast<Words>(load_pairs(row_of<T>(p.keys, p.from + j + k) + i, p.keys.d - i));
      transpose(block);
      for (int64_t k = 0; k < PM_LANES && i + 2 * k < p.keys.d; ++k)
        put(p.packed_keys + (i / 2 + k) * span_keys + j, reinterpret_cast<Floats>(block[k]));
    }
  }
  const int64_t width = packed_width(p.values.d);
  const auto widened = [&](int64_t j, int64_t i) {  // a number in the lower half of each word
    if (j >= p.count) return Words{};
    return reinterpret_cast<Words>(load_some(row_of<T>(p.values, p.from + j) + i, p.values.d - i)) >> 16;
  };
  for (int64_t j = 0; j < p.count; j += 2) {
    for (int64_t i = 0; i < width; i += PM_LANES)
      put(p.packed_values + j / 2 * width + i, reinterpret_cast<Floats>(widened(j, i) | widened(j + 1, i) << 16));
  }
}

void pack_keys_bf16(const PackKeys& p) {
  if (!has_pairs(p.keys.type, p.bf16, p.keys.d)) return pack_keys(p);
  if (p.keys.type == Element::BF16) return pack_pairs<BF16>(p);
  pack_pairs<int8_t>(p);
  pack_scales(p.keys, p.from, p.count, scales_of(p.packed_keys, p.keys.d));
  pack_scales(p.values, p.from, p.count, scales_of(p.packed_values, packed_width(p.values.d)));
}

/// Writes q . k of Rows rounded queries, most_numbers apart, and Vectors vectors of keys to scores [rows][span_keys].
template <int Rows, int Vectors>
__attribute__((always_inline)) inline void pair_products(const uint16_t* queries, int64_t d, const float* keys,
                                                         float* scores) {
  Floats sums[Rows][Vectors]{};
  for (int64_t i = 0; i < d; i += 2, keys += span_keys) {
    for (int r = 0; r < Rows; ++r) {
      const __m512bh q = all_pairs(queries + r * most_numbers + i);
      for (int v = 0; v < Vectors; ++v) sums[r][v] = add_pairs(sums[r][v], q, at<__m512bh>(keys + v * PM_LANES));
    }
  }
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vectors; ++v) put(scores + r * span_keys + v * PM_LANES, sums[r][v]);
}

/// Adds rounded weights [rows][span_keys] times values to the rows' results, for Vectors vectors from `column` on.
template <int Rows, int Vectors>
__attribute__((always_inline)) inline void weigh_pairs(const QueryRow* rows, const uint16_t* weights, int64_t begin,
                                                       int64_t end, const float* values, int64_t width,
                                                       int64_t column) {
  Floats sums[Rows][Vectors];
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vectors; ++v) sums[r][v] = load(rows[r].out + column + v * PM_LANES);
  for (int64_t j = begin; j < end; j += 2) {
    for (int r = 0; r < Rows; ++r) {
      const __m512bh weight = all_pairs(weights + r * span_keys + j);
      for (int v = 0; v < Vectors; ++v)
        sums[r][v] = add_pairs(sums[r][v], weight, at<__m512bh>(values + j / 2 * width + column + v * PM_LANES));
    }
  }
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vectors; ++v) put(rows[r].out + column + v * PM_LANES, sums[r][v]);
}

/// Returns the weights, and writes them rounded; of codes they are multiplied by the scales of their values first.
inline Floats rounded_weights(Floats weights, uint16_t* to) {
  put_rounded(to, weights);
  return load(reinterpret_cast<const BF16*>(to));
}
inline Floats scaled_weights(Floats weights, Floats scales, uint16_t* to) {
  put_rounded(to, weights == 0 ? Floats{} : weights * scales);  // where nothing is seen there may be any scale
  return weights;
}

/// Turns the products of a row with keys [begin, end) of the span into rounded weights, and scales what the row has
/// accumulated before.
inline void rounded_weights_of(const AttendRows& a, QueryRow& row, int64_t begin, int64_t end, float* scores,
                               uint16_t* weights) {
  const float* scales = a.type == Element::I8 ? scales_of(a.packed_values, packed_width(a.d)) : nullptr;
  if (scales) {
    const float* of_keys = scales_of(a.packed_keys, a.d);
    for (int64_t j = begin; j < end; j += PM_LANES) put(scores + j, load(scores + j) * load(of_keys + j));
  }
  const float none = -__builtin_inff(), largest = scores_of(a, row, begin, end, scores);
  if (largest == none && row.largest == none) {  // it has seen no key
    for (int64_t j = begin; j < end; ++j) weights[j] = 0;
    return;
  }
  float power = row.largest == none ? power_above(largest) : power_of(row.largest);
  if (largest > score_of(power)) {
    const float before = power;
    power = power_above(largest);
    scale_row(row, a.d, exp(all((before - power) * ln_of_2))[0]);
  }
  Floats total{};
  for (int64_t j = begin; j < end; j += PM_LANES) {
    const Floats some = weight_of(load(scores + j), power);
    total += scales ? scaled_weights(some, load(scales + j), weights + j) : rounded_weights(some, weights + j);
  }
  row.largest = score_of(power);
  row.sum += sum(total);
}

template <int Rows>
void attend_pairs(const AttendRows& a, QueryRow* rows) {
  alignas(64) float scores[Rows * span_keys];
  alignas(64) uint16_t weights[Rows * span_keys], queries[Rows * most_numbers];
  const auto [begin, end] = seen_keys(a, rows, Rows);
  if (begin >= end) return;
  for (int r = 0; r < Rows; ++r) round_query(rows[r].q, a.d, queries + r * most_numbers);
  int64_t j = begin;
  for (; j + together * PM_LANES <= end; j += together * PM_LANES)
    pair_products<Rows, together>(queries, a.d, a.packed_keys + j, scores + j);
  if (j < end) pair_products<Rows, 1>(queries, a.d, a.packed_keys + j, scores + j);
  for (int r = 0; r < Rows; ++r)
    rounded_weights_of(a, rows[r], begin, end, scores + r * span_keys, weights + r * span_keys);
  const int64_t width = packed_width(a.d), last = end < a.keys ? end : a.keys;
  int64_t i = 0;
  for (; i + together * PM_LANES <= width; i += together * PM_LANES)
    weigh_pairs<Rows, together>(rows, weights, begin, last, a.packed_values, width, i);
  for (; i < width; i += PM_LANES) weigh_pairs<Rows, 1>(rows, weights, begin, last, a.packed_values, width, i);
}

void attend_rows_bf16(const AttendRows& a) {
  if (!has_pairs(a.type, a.bf16, a.d)) return attend_rows(a);
  constexpr int many = 8;
  int64_t r = 0;
  for (; r + many <= a.count; r += many) attend_pairs<many>(a, a.rows + r);
  for (; r + 2 <= a.count; r += 2) attend_pairs<2>(a, a.rows + r);
  for (; r < a.count; ++r) attend_pairs<1>(a, a.rows + r);
}

/// Returns the products of a rounded query of d numbers with PM_LANES keys from `keys` on, whose rows are `stride`
/// apart. Fetches the rows of `ahead`, if there are any.
template <typename... Ahead>
__attribute__((always_inline)) inline Floats pair_products_of(const uint16_t* query, const uint16_t* keys, int64_t d,
                                                              int64_t stride, Ahead... ahead) {
  Floats parts[PM_LANES]{};
  int64_t i = 0;
  for (; i + 32 <= d; i += 32) {
    const __m512bh some = at<__m512bh>(query + i);
    const uint16_t* key = keys + i;
#pragma GCC unroll 16
    for (int t = 0; t < PM_LANES; ++t, key += stride) {
      parts[t] = add_pairs(parts[t], some, at<__m512bh>(key));
      (__builtin_prefetch(ahead + t * stride + i), ...);
    }
  }
  return sums_of(parts);
}

/// The same for the `count` numbers behind whole vectors of 32.
__attribute__((noinline)) inline Floats pair_products_of_rest(const uint16_t* query, const uint16_t* keys,
                                                              int64_t count, int64_t stride) {
  Floats parts[PM_LANES];
  for (int t = 0; t < PM_LANES; ++t)
    parts[t] = add_pairs(Floats{}, at<__m512bh>(query), load_pairs(keys + t * stride, count));
  return sums_of(parts);
}

/// A block of keys in bf16, and the one behind it.
struct PairBlock {
  const uint16_t* queries;  ///< [heads, most_numbers]
  const uint16_t *keys, *next;
  int64_t d;
  Floats products(int64_t head, int64_t t) const {
    const uint16_t *query = queries + head * most_numbers, *from = keys + t * d;
    const Floats sums = head == 0 ? pair_products_of(query, from, d, d, next + t * d)  //
                                  : pair_products_of(query, from, d, d);
    const int64_t whole = d / 32 * 32;
    return whole == d ? sums : sums + pair_products_of_rest(query + whole, from + whole, d - whole, d);
  }
};

/// A block of keys as codes, widened to rows of whole vectors, and the scales of the keys.
struct CodeBlock {
  const uint16_t* queries;  ///< [heads, most_numbers]
  const uint16_t* tile;     ///< [block_tokens, width]
  const int8_t* scales;
  int64_t width;
  Floats products(int64_t head, int64_t t) const {
    return pair_products_of(queries + head * most_numbers, tile + t * width, width, width) *
           at<Floats>(scales + t * kv_scale_bytes);
  }
};

using Shorts = uint16_t __attribute__((vector_size(64)));

/// Pairs the numbers of two rows: those of columns 0 to 3, 8 to 11 and so on, or four columns further.
inline __m512bh paired_low(__m512bh a, __m512bh b) {
  return reinterpret_cast<__m512bh>(__builtin_shufflevector(
      reinterpret_cast<Shorts>(a), reinterpret_cast<Shorts>(b), 0, 32, 1, 33, 2, 34, 3, 35, 8, 40, 9, 41, 10, 42, 11,
      43, 16, 48, 17, 49, 18, 50, 19, 51, 24, 56, 25, 57, 26, 58, 27, 59));
}
inline __m512bh paired_high(__m512bh a, __m512bh b) {
  return reinterpret_cast<__m512bh>(__builtin_shufflevector(
      reinterpret_cast<Shorts>(a), reinterpret_cast<Shorts>(b), 4, 36, 5, 37, 6, 38, 7, 39, 12, 44, 13, 45, 14, 46, 15,
      47, 20, 52, 21, 53, 22, 54, 23, 55, 28, 60, 29, 61, 30, 62, 31, 63));
}

/// Computes columns i .. i + 32 Chunks - 1 of the sums of weight x value over pairs of keys, for Heads heads; weights
/// [heads, score_stride] in bf16.
template <int Heads, int Chunks, typename T>
__attribute__((always_inline)) inline void weigh_blocks(const Attend& a, const uint16_t* weights, int64_t i,
                                                        float* out) {
  constexpr int64_t of_a_line = 64 / static_cast<int64_t>(sizeof(T));
  Floats low[Heads][Chunks]{}, high[Heads][Chunks]{};
  for (int64_t start = a.from; start < a.to; start += block_tokens) {
    const T *values = block_of<T>(a, a.values, start) + i, *next = next_block_of<T>(a, a.values, start);
    const int64_t count = a.to - start < block_tokens ? a.to - start : block_tokens;
    for (int64_t t = 0; t < count; t += 2) {
      for (int64_t k = 0; i == 0 && k < 2 * a.d; k += of_a_line) __builtin_prefetch(next + t * a.d + k);
      for (int c = 0; c < Chunks; ++c) {
        const int64_t columns = Chunks > 1 ? 32 : a.d - i;
        const __m512bh even = load_pairs(values + t * a.d + 32 * c, columns),
                       odd = t + 1 < count ? load_pairs(values + (t + 1) * a.d + 32 * c, columns) : __m512bh{};
        const __m512bh some = paired_low(even, odd), others = paired_high(even, odd);
        for (int h = 0; h < Heads; ++h) {
          const __m512bh weight = all_pairs(weights + h * score_stride + start - a.from + t);
          low[h][c] = add_pairs(low[h][c], weight, some);
          high[h][c] = add_pairs(high[h][c], weight, others);
        }
      }
    }
  }
  for (int h = 0; h < Heads; ++h) {
    for (int c = 0; c < Chunks; ++c) {
      const int64_t first = i + 32 * c, rest = a.d - first;
      const Floats l = low[h][c], u = high[h][c];
      put_some(out + h * a.d + first,
               __builtin_shufflevector(l, u, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23), rest);
      if (rest <= PM_LANES) continue;
      put_some(out + h * a.d + first + PM_LANES,
               __builtin_shufflevector(l, u, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31),
               rest - PM_LANES);
    }
  }
}

/// Computes the columns from i on, Chunks times 32 at a time, and then fewer.
template <int Heads, int Chunks, typename T>
__attribute__((always_inline)) inline void weigh_chunks(const Attend& a, const uint16_t* weights, int64_t i,
                                                        float* out) {
  for (; i + 32 * Chunks <= a.d; i += 32 * Chunks) weigh_blocks<Heads, Chunks, T>(a, weights, i, out);
  if constexpr (Chunks > 1)
    weigh_chunks<Heads, Chunks / 2, T>(a, weights, i, out);
  else if (i < a.d)
    weigh_blocks<Heads, 1, T>(a, weights, i, out);
}

template <int Heads, typename T>
void weigh_pairs_of_heads(const Attend& a, const uint16_t* weights, float* out) {
  weigh_chunks<Heads, Heads == 4 ? 2 : 4, T>(a, weights, 0, out);  // a head has two sums of a chunk
}

/// Attends with the scores of all keys. `rounded_weights(weights, i, to)` rounds those of PM_LANES keys from the i-th
/// on, and returns those whose sum divides the result.
template <typename T, typename RoundedWeights>
void weigh_values(const Attend& a, const float* scores, RoundedWeights rounded_weights) {
  alignas(64) uint16_t rounded[most_heads * score_stride];
  for (int64_t head = 0; head < a.heads; ++head) {
    const float power = power_above(a.largest[head]);
    const int64_t first = head * score_stride;
    Floats total{};
    for (int64_t i = 0; i < a.to - a.from; i += PM_LANES)
      total += rounded_weights(weight_of(load(scores + first + i), power), i, rounded + first + i);
    a.largest[head] = score_of(power);
    a.sums[head] = sum(total);
  }
  int64_t head = 0;
  const auto weigh = [&](auto heads) {
    weigh_pairs_of_heads<heads.count, T>(a, rounded + head * score_stride, a.out + head * a.d);
    head += heads.count;
  };
  while (head + 4 <= a.heads) weigh(Count<4>{});
  while (head + 2 <= a.heads) weigh(Count<2>{});
  while (head < a.heads) weigh(Count<1>{});
}

void attend_heads_bf16(const Attend& a) {
  alignas(64) uint16_t queries[most_heads * most_numbers];
  alignas(64) float scores[most_heads * score_stride];
  for (int64_t head = 0; head < a.heads; ++head) round_query(a.q + head * a.d, a.d, queries + head * most_numbers);
  const auto keys_of = [](const BF16* block) { return reinterpret_cast<const uint16_t*>(block); };
  const auto blocks = [&](int64_t start) {
    return PairBlock{queries, keys_of(block_of<BF16>(a, a.keys, start)), keys_of(next_block_of<BF16>(a, a.keys, start)),
                     a.d};
  };
  score_heads(a, blocks, scores);
  weigh_values<BF16>(a, scores, [](Floats weights, int64_t, uint16_t* to) { return rounded_weights(weights, to); });
}

/// The same for keys and values as codes, in a model that computes in bf16.
void attend_code_heads_bf16(const Attend& a) {
  alignas(64) uint16_t queries[most_heads * most_numbers], tile[block_tokens * most_numbers];
  alignas(64) float scores[most_heads * score_stride];
  const int64_t width = (a.d + 31) / 32 * 32;
  for (int64_t head = 0; head < a.heads; ++head) round_query(a.q + head * a.d, a.d, queries + head * most_numbers);
  const auto blocks = [&](int64_t start) {
    const int8_t *keys = block_of<int8_t>(a, a.keys, start), *next = next_block_of<int8_t>(a, a.keys, start);
    for (int64_t t = 0; t < block_tokens; ++t) {
      for (int64_t k = 0; k < a.d; k += 64) __builtin_prefetch(next + t * a.d + k);
      for (int64_t i = 0; i < width; i += 32) {
        const __m512bh some = load_pairs(keys + t * a.d + i, a.d - i);
        __builtin_memcpy(tile + t * width + i, &some, sizeof some);
      }
    }
    return CodeBlock{queries, tile, keys + block_tokens * a.d, width};
  };
  score_heads(a, blocks, scores);
  weigh_values<int8_t>(a, scores, [&](Floats weights, int64_t i, uint16_t* to) {
    const int8_t* scales = block_of<int8_t>(a, a.values, a.from + i) + block_tokens * a.d;
    return scaled_weights(weights, at<Floats>(scales), to);
  });
}

void attend_bf16(const Attend& a) {
  if (!has_pairs(a.type, a.bf16, a.d))
    attend(a);
  else if (a.type == Element::I8)
    divide_heads(a, attend_code_heads_bf16);
  else
    divide_heads(a, attend_heads_bf16);
}

}  // namespace

}  // namespace pm::ops::PM_ISA
