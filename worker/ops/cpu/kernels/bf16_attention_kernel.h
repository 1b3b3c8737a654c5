// SPDX-License-Identifier: Apache-2.0
// The kernels attend(), pack_keys() and attend_rows() of kernels.h for keys and values in bf16 on CPUs whose vector
// units multiply bf16 numbers. Queries and weights are rounded to bf16, and sums are fp32. Weights are relative to a
// power of two rather than to the largest score, so that their rounding does not depend on the keys that are seen
// together: one query and many have the same operands. Their sum is that of the rounded ones.
#pragma once
#include "worker/ops/cpu/kernels/attention_kernel.h"
#include "worker/ops/cpu/kernels/prefill_kernel.h"

namespace pm::ops::PM_ISA {

namespace {

constexpr int64_t most_numbers = 1024;  // of a query; longer ones take the other kernels

inline bool has_pairs(Element type, int64_t d) { return type == Element::BF16 && d <= most_numbers; }

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
  return exponent > 0 ? weight : Floats{};
}

/// Keys become [pairs of numbers][span_keys][2], values [pairs of keys][packed_width(d)][2].
void pack_keys_bf16(const PackKeys& p) {
  if (!has_pairs(p.keys.type, p.keys.d)) return pack_keys(p);
  const auto key = [&](const KeyRows& rows, int64_t j) {
    return reinterpret_cast<const uint16_t*>(row_of<BF16>(rows, p.from + j));
  };
  for (int64_t j = 0; j < p.count; j += PM_LANES) {
    for (int64_t i = 0; i < p.keys.d; i += 2 * PM_LANES) {
      Words block[PM_LANES]{};
      for (int64_t k = 0; k < PM_LANES && j + k < p.count; ++k)
        block[k] = reinterpret_cast<Words>(load_pairs(key(p.keys, j + k) + i, p.keys.d - i));
      transpose(block);
      for (int64_t k = 0; k < PM_LANES && i + 2 * k < p.keys.d; ++k)
        put(p.packed_keys + (i / 2 + k) * span_keys + j, reinterpret_cast<Floats>(block[k]));
    }
  }
  const int64_t width = packed_width(p.values.d);
  const auto widened = [&](int64_t j, int64_t i) {  // a number in the lower half of each word
    if (j >= p.count) return Words{};
    return reinterpret_cast<Words>(load_some(row_of<BF16>(p.values, p.from + j) + i, p.values.d - i)) >> 16;
  };
  for (int64_t j = 0; j < p.count; j += 2) {
    for (int64_t i = 0; i < width; i += PM_LANES)
      put(p.packed_values + j / 2 * width + i, reinterpret_cast<Floats>(widened(j, i) | widened(j + 1, i) << 16));
  }
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

/// Turns the products of a row with keys [begin, end) of the span into rounded weights, and scales what the row has
/// accumulated before.
inline void rounded_weights_of(const AttendRows& a, QueryRow& row, int64_t begin, int64_t end, float* scores,
                               uint16_t* weights) {
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
    put_rounded(weights + j, weight_of(load(scores + j), power));
    total += load(reinterpret_cast<const BF16*>(weights + j));
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
  if (!has_pairs(a.type, a.d)) return attend_rows(a);
  constexpr int many = 8;
  int64_t r = 0;
  for (; r + many <= a.count; r += many) attend_pairs<many>(a, a.rows + r);
  for (; r + 2 <= a.count; r += 2) attend_pairs<2>(a, a.rows + r);
  for (; r < a.count; ++r) attend_pairs<1>(a, a.rows + r);
}

/// The arithmetic of score() for a rounded query.
struct RoundedQuery {
  const uint16_t* q;
  float operator()(const BF16* key, int64_t d) const {
    const auto* from = reinterpret_cast<const uint16_t*>(key);
    Floats part{};
    for (int64_t i = 0; i < d; i += 32) part = add_pairs(part, at<__m512bh>(q + i), load_pairs(from + i, d - i));
    return sum(part);
  }
};

void attend_bf16(const Attend& a) {
  if (!has_pairs(a.type, a.d)) return attend(a);
  alignas(64) uint16_t query[most_numbers];
  float weights[max_attend_keys + PM_LANES];
  const int64_t count = a.to - a.from;
  for (int64_t head = 0; head < a.heads; ++head) {
    round_query(a.q + head * a.d, a.d, query);
    const float* bias = a.bias ? a.bias + head * a.bias_stride : nullptr;
    float largest = score<BF16>(a, RoundedQuery{query}, bias, weights);
    if (a.softcap > 0) largest = capped(a.softcap, weights, count);
    for (int64_t i = count; i % PM_LANES != 0; ++i) weights[i] = -__builtin_inff();
    const float power = power_above(largest);
    Floats total{};
    for (int64_t i = 0; i < count; i += PM_LANES) {
      uint16_t rounded[PM_LANES];
      put_rounded(rounded, weight_of(load(weights + i), power));
      const Floats weight = load(reinterpret_cast<const BF16*>(rounded));
      put(weights + i, weight);
      total += weight;
    }
    a.largest[head] = score_of(power);
    a.sums[head] = sum(total);
    weigh_all<BF16>(a, weights, a.out + head * a.d);
  }
}

}  // namespace

}  // namespace pm::ops::PM_ISA
