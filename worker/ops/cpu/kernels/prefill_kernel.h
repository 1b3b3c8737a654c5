// SPDX-License-Identifier: Apache-2.0
// The CPU kernels pack_keys() and attend_rows() of prefill.h, compiled once per instruction set with PM_ISA (a
// namespace) and PM_LANES (floats of a vector).
#pragma once
#include "worker/ops/cpu/kernels/kernels.h"
#include "worker/ops/cpu/kernels/vectors.h"

namespace pm::ops::PM_ISA {

namespace {

template <typename T>
inline const T* row_of(const KeyRows& rows, int64_t j) {
  const T* first = static_cast<const T*>(rows.first);
  return rows.blocks ? first + rows.blocks[j / block_tokens] * rows.block_stride + j % block_tokens * rows.stride
                     : first + j * rows.stride;
}

/// Returns elements i .. of key j, as many as a vector has; those beyond its end are 0.
template <typename T>
inline Floats elements_of(const KeyRows& rows, int64_t j, int64_t i) {
  const Floats some = load_some(row_of<T>(rows, j) + i, rows.d - i);
  if constexpr (sizeof(T) > 1) return some;
  const int8_t* block = static_cast<const int8_t*>(rows.first) + rows.blocks[j / block_tokens] * rows.block_stride;
  return some * at<float>(block + block_tokens * rows.d + j % block_tokens * kv_scale_bytes);
}

// Packed keys are [span_keys / PM_LANES][d][PM_LANES], packed values [width / PM_LANES][span_keys][PM_LANES]: what a
// product reads lies in a row, for numbers of a power of two apart have few places in the first-level cache.
inline int64_t place_of_keys(int64_t j, int64_t d) { return j * d; }  // j is a multiple of PM_LANES
inline int64_t place_of_values(int64_t i) { return i * span_keys; }   // likewise

/// Packs PM_LANES keys, of which `count` exist.
template <typename T>
void pack_columns(const KeyRows& keys, int64_t from, int64_t count, float* packed) {
  for (int64_t i = 0; i < keys.d; i += PM_LANES) {
    Floats block[PM_LANES]{};
    for (int64_t j = 0; j < count && j < PM_LANES; ++j) block[j] = elements_of<T>(keys, from + j, i);
    transpose(block);
    for (int64_t k = 0; k < PM_LANES && i + k < keys.d; ++k) put(packed + (i + k) * PM_LANES, block[k]);
  }
}

template <typename T>
void pack_typed(const PackKeys& p) {
  for (int64_t j = 0; j < p.count; j += PM_LANES)
    pack_columns<T>(p.keys, p.from + j, p.count - j, p.packed_keys + place_of_keys(j, p.keys.d));
  const int64_t width = packed_width(p.values.d);
  for (int64_t j = 0; j < p.count; ++j)
    for (int64_t i = 0; i < width; i += PM_LANES)
      put(p.packed_values + place_of_values(i) + j * PM_LANES, elements_of<T>(p.values, p.from + j, i));
}

void pack_keys(const PackKeys& p) {
  if (p.keys.type == Element::F32)
    pack_typed<float>(p);
  else if (p.keys.type == Element::F16)
    pack_typed<F16>(p);
  else if (p.keys.type == Element::I8)
    pack_typed<int8_t>(p);
  else
    pack_typed<BF16>(p);
}

constexpr int64_t together = 2;  // vectors of keys, or of values, that share the loaded numbers of the rows

/// Writes q . k of Rows rows and Vectors vectors of keys to scores [rows][span_keys].
template <int Rows, int Vectors>
__attribute__((always_inline)) inline void products(const QueryRow* rows, int64_t d, const float* keys, float* scores) {
  Floats sums[Rows][Vectors]{};
  for (int64_t i = 0; i < d; ++i) {
    for (int r = 0; r < Rows; ++r) {
      const Floats q = all(rows[r].q[i]);
      for (int v = 0; v < Vectors; ++v) sums[r][v] += q * load(keys + place_of_keys(v * PM_LANES, d) + i * PM_LANES);
    }
  }
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vectors; ++v) put(scores + r * span_keys + v * PM_LANES, sums[r][v]);
}

/// Adds weights [rows][span_keys] times values to the rows' results, for Vectors vectors of values from `values` on.
template <int Rows, int Vectors>
__attribute__((always_inline)) inline void weigh_rows(const QueryRow* rows, const float* weights, int64_t begin,
                                                      int64_t end, const float* values, int64_t column) {
  Floats sums[Rows][Vectors];
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vectors; ++v) sums[r][v] = load(rows[r].out + column + v * PM_LANES);
  for (int64_t j = begin; j < end; ++j) {
    for (int r = 0; r < Rows; ++r) {
      const Floats weight = all(weights[r * span_keys + j]);
      for (int v = 0; v < Vectors; ++v)
        sums[r][v] += weight * load(values + place_of_values(column + v * PM_LANES) + j * PM_LANES);
    }
  }
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vectors; ++v) put(rows[r].out + column + v * PM_LANES, sums[r][v]);
}

inline Floats scored(const AttendRows& a, const QueryRow& row, Floats product, int64_t j) {
  Floats score = product * a.scale;
  if (a.softcap > 0) score = a.softcap * tanh(score / a.softcap);
  if (row.bias) score += load_some(row.bias + a.from + j, a.keys - j);
  return score;
}

/// Turns the products of a row with keys [begin, end) of the span, whole vectors, into scores, -infinity where the row
/// does not see the key. Returns the largest.
inline float scores_of(const AttendRows& a, const QueryRow& row, int64_t begin, int64_t end, float* scores) {
  const Ints lane = lane_indices();
  const int64_t last = row.to - a.from < a.keys ? row.to - a.from : a.keys;
  const auto from = static_cast<int32_t>(row.from > a.from ? row.from - a.from : 0), to = static_cast<int32_t>(last);
  const Floats none = all(-__builtin_inff());
  Floats most = none;
  for (int64_t j = begin; j < end; j += PM_LANES) {
    Floats score = scored(a, row, load(scores + j), j);
    if (j < from || j + PM_LANES > to) {
      const Ints key = lane + static_cast<int32_t>(j);
      score = key >= from ? score : none;
      score = key < to ? score : none;
    }
    put(scores + j, score);
    most = score > most ? score : most;
  }
  return largest_of(most);
}

/// Scales what a row has accumulated.
inline void scale_row(QueryRow& row, int64_t d, float share) {
  row.sum *= share;
  for (int64_t i = 0; i < packed_width(d); i += PM_LANES) put(row.out + i, load(row.out + i) * share);
}

/// Turns the products of a row with keys [begin, end) of the span, whole vectors, into weights relative to the row's
/// largest score, and scales what the row has accumulated before.
inline void weights_of(const AttendRows& a, QueryRow& row, int64_t begin, int64_t end, float* scores) {
  float largest = scores_of(a, row, begin, end, scores);
  largest = row.largest > largest ? row.largest : largest;
  if (largest == -__builtin_inff()) {  // it has seen no key
    for (int64_t j = begin; j < end; ++j) scores[j] = 0;
    return;
  }
  Floats total{};
  for (int64_t j = begin; j < end; j += PM_LANES) {
    const Floats weight = exp(load(scores + j) - largest);
    put(scores + j, weight);
    total += weight;
  }
  if (largest > row.largest) {
    scale_row(row, a.d, exp(all(row.largest - largest))[0]);
    row.largest = largest;
  }
  row.sum += sum(total);
}

/// Keys of the span that any of some rows sees, whole vectors.
struct SeenKeys {
  int64_t begin, end;
};
inline SeenKeys seen_keys(const AttendRows& a, const QueryRow* rows, int64_t count) {
  int64_t begin = a.keys, end = 0;
  for (int64_t r = 0; r < count; ++r) {
    if (rows[r].from >= rows[r].to) continue;
    begin = rows[r].from - a.from < begin ? rows[r].from - a.from : begin;
    end = rows[r].to - a.from > end ? rows[r].to - a.from : end;
  }
  return {begin < 0 ? 0 : begin / PM_LANES * PM_LANES,
          ((end < a.keys ? end : a.keys) + PM_LANES - 1) / PM_LANES * PM_LANES};
}

template <int Rows>
void attend_some(const AttendRows& a, QueryRow* rows) {
  alignas(64) float scores[Rows * span_keys];
  const auto [begin, end] = seen_keys(a, rows, Rows);
  if (begin >= end) return;
  int64_t j = begin;
  for (; j + together * PM_LANES <= end; j += together * PM_LANES)
    products<Rows, together>(rows, a.d, a.packed_keys + place_of_keys(j, a.d), scores + j);
  if (j < end) products<Rows, 1>(rows, a.d, a.packed_keys + place_of_keys(j, a.d), scores + j);
  for (int r = 0; r < Rows; ++r) weights_of(a, rows[r], begin, end, scores + r * span_keys);
  const int64_t width = packed_width(a.d), last = end < a.keys ? end : a.keys;
  int64_t i = 0;
  for (; i + together * PM_LANES <= width; i += together * PM_LANES)
    weigh_rows<Rows, together>(rows, scores, begin, last, a.packed_values, i);
  for (; i < width; i += PM_LANES) weigh_rows<Rows, 1>(rows, scores, begin, last, a.packed_values, i);
}

void attend_rows(const AttendRows& a) {
  constexpr int many = PM_LANES == 16 ? 8 : 6;  // as many sums as registers hold
  int64_t r = 0;
  for (; r + many <= a.count; r += many) attend_some<many>(a, a.rows + r);
  for (; r + 2 <= a.count; r += 2) attend_some<2>(a, a.rows + r);
  for (; r < a.count; ++r) attend_some<1>(a, a.rows + r);
}

}  // namespace

}  // namespace pm::ops::PM_ISA
