// SPDX-License-Identifier: Apache-2.0
// The kernels pack_keys() and attend_rows() of prefill.h by AMX, for keys and values in bf16. Sixteen rows are the
// columns of all tiles: scores are K q^T, results V^T p^T. So the softmax has a row in each lane, keys are tiles as
// they are stored, and q and p enter in two parts.
#include "worker/ops/cpu/kernels/kernels.h"
#include "worker/ops/cpu/kernels/tiles_kernel.h"

namespace pm::ops::amx {

namespace {

constexpr int64_t keys_together = 64;  // of four tiles of sums
constexpr int64_t key_steps = span_keys / tile_inputs;

/// Returns how many steps a product over d inputs has.
inline int64_t steps_of(int64_t d) { return (d + tile_inputs - 1) / tile_inputs; }

inline const uint16_t* row_of(const KeyRows& rows, int64_t j) {
  const auto* first = static_cast<const uint16_t*>(rows.first);
  return rows.blocks ? first + rows.blocks[j / block_tokens] * rows.block_stride + j % block_tokens * rows.stride
                     : first + j * rows.stride;
}

/// Loads up to 16 bf16 numbers, one in each word.
inline Words load_words(const uint16_t* from, int64_t count) {
  if (count >= 16) return reinterpret_cast<Words>(_mm512_maskz_cvtepu16_epi32(0xffff, at<__m256i>(from)));
  Words some{};
  for (int64_t i = 0; i < count; ++i) some[i] = from[i];
  return some;
}

/// Keys become [tiles of 16 keys][steps of d][16][32], values [tiles of 16 numbers][key_steps][16][32 keys].
void pack_keys(const PackKeys& p) {
  const int64_t d = p.keys.d, steps = steps_of(d),
                whole = (p.count + keys_together - 1) / keys_together * keys_together;
  auto* keys = reinterpret_cast<uint16_t*>(p.packed_keys);
  for (int64_t j = 0; j < whole; ++j) {
    uint16_t* to = keys + j / tile_size * steps * tile + j % tile_size * tile_inputs;
    for (int64_t k = 0; k < d; k += tile_inputs, to += tile) {
      const int64_t numbers = j < p.count ? d - k : 0;
      if (numbers >= tile_inputs) {
        __builtin_memcpy(to, row_of(p.keys, p.from + j) + k, 64);
        continue;
      }
      put(to, Words{});
      for (int64_t i = 0; i < numbers; ++i) to[i] = row_of(p.keys, p.from + j)[k + i];
    }
  }
  auto* values = reinterpret_cast<uint16_t*>(p.packed_values);
  for (int64_t j = 0; j < whole; j += tile_inputs) {
    for (int64_t i = 0; i < d; i += tile_size) {
      Words pairs[tile_size]{};
      for (int64_t pair = 0; pair < tile_size && j + 2 * pair < p.count; ++pair) {
        const int64_t key = p.from + j + 2 * pair;
        pairs[pair] = load_words(row_of(p.values, key) + i, d - i);
        if (j + 2 * pair + 1 < p.count) pairs[pair] |= load_words(row_of(p.values, key + 1) + i, d - i) << 16;
      }
      transpose(pairs);
      uint16_t* to = values + (i / tile_size * key_steps + j / tile_inputs) * tile;
      for (int64_t n = 0; n < tile_size; ++n) put(to + n * tile_inputs, pairs[n]);
    }
  }
}

/// Adds the products of Count tiles of `a`, which lie `stride` apart, with tile b to the sums, tiles 0 to 3.
template <int Count>
__attribute__((always_inline)) inline void multiply_step(const uint16_t* a, int64_t stride, const uint16_t* b) {
  _tile_loadd(6, b, 64);
  _tile_loadd(4, a, 64);
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (Count > 1) {
    _tile_loadd(5, a + stride, 64);
    _tile_dpbf16ps(1, 5, 6);
  }
  if constexpr (Count > 2) {
    _tile_loadd(4, a + 2 * stride, 64);
    _tile_dpbf16ps(2, 4, 6);
  }
  if constexpr (Count > 3) {
    _tile_loadd(5, a + 3 * stride, 64);
    _tile_dpbf16ps(3, 5, 6);
  }
}

/// Computes Count tiles of sums [16][16]: over the steps, tiles of `a` times all parts of b
/// [steps][input_parts][tile]. Tiles of
/// `a` are loaded for each part, so that four products lie between two that add to the same sums.
template <int Count>
__attribute__((always_inline)) inline void multiply_column(const uint16_t* a, int64_t stride, const uint16_t* b,
                                                           int64_t steps, float* sums) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t s = 0; s < steps; ++s, a += tile, b += input_parts * tile) {
    for (int64_t p = input_parts - 1; p >= 0; --p) multiply_step<Count>(a, stride, b + p * tile);
  }
  _tile_stored(0, sums, 64);
  if constexpr (Count > 1) _tile_stored(1, sums + 256, 64);
  if constexpr (Count > 2) _tile_stored(2, sums + 512, 64);
  if constexpr (Count > 3) _tile_stored(3, sums + 768, 64);
}

void multiply_columns(int64_t count, const uint16_t* a, int64_t stride, const uint16_t* b, int64_t steps, float* sums) {
  if (count >= 4)
    multiply_column<4>(a, stride, b, steps, sums);
  else if (count == 3)
    multiply_column<3>(a, stride, b, steps, sums);
  else if (count == 2)
    multiply_column<2>(a, stride, b, steps, sums);
  else
    multiply_column<1>(a, stride, b, steps, sums);
}

/// What sixteen rows, one in each lane, have accumulated, and the keys of the span that they see.
struct Lanes {
  Floats largest, sum;
  Ints from, to;
  int64_t begin = span_keys, end = 0;          ///< that any row sees
  int64_t all_begin = 0, all_end = span_keys;  ///< that all rows see
};

inline Lanes lanes_of(const AttendRows& a, const QueryRow* rows, int64_t count) {
  Lanes lanes;
  for (int64_t r = 0; r < tile_size; ++r) {
    int64_t from = r < count ? rows[r].from - a.from : 0, to = r < count ? rows[r].to - a.from : 0;
    from = from < 0 ? 0 : from;
    to = to > a.keys ? a.keys : to;
    lanes.from[r] = static_cast<int32_t>(from);
    lanes.to[r] = static_cast<int32_t>(to < 0 ? 0 : to);
    lanes.largest[r] = r < count ? rows[r].largest : -__builtin_inff();
    lanes.sum[r] = r < count ? rows[r].sum : 0;
    if (from < to) {
      lanes.begin = from < lanes.begin ? from : lanes.begin;
      lanes.end = to > lanes.end ? to : lanes.end;
    }
    lanes.all_begin = from > lanes.all_begin ? from : lanes.all_begin;
    lanes.all_end = to < lanes.all_end ? to : lanes.all_end;
  }
  lanes.begin = lanes.begin / keys_together * keys_together;
  lanes.end = (lanes.end + keys_together - 1) / keys_together * keys_together;
  return lanes;
}

/// Turns the products of keys [begin, end) into weights relative to each row's largest score. Returns by what the rows'
/// former results are multiplied.
inline Floats weights_of(const AttendRows& a, Lanes& lanes, float* scores) {
  const Floats none = all(-__builtin_inff()), before = lanes.largest;
  for (int64_t j = lanes.begin; j < lanes.end; ++j) {
    Floats score = load(scores + j * tile_size) * a.scale;
    if (a.softcap > 0) score = a.softcap * tanh(score / a.softcap);
    if (j < lanes.all_begin || j >= lanes.all_end) {
      const Ints key = Ints{} + static_cast<int32_t>(j);
      score = key >= lanes.from ? score : none;
      score = key < lanes.to ? score : none;
    }
    lanes.largest = score > lanes.largest ? score : lanes.largest;
    put(scores + j * tile_size, score);
  }
  const Floats base = lanes.largest == none ? Floats{} : lanes.largest;  // of rows that have seen no key
  const Floats share = exp(before - base);
  Floats total{};
  for (int64_t j = lanes.begin; j < lanes.end; ++j) {
    const Floats weight = exp(load(scores + j * tile_size) - base);
    put(scores + j * tile_size, weight);
    total += weight;
  }
  lanes.sum = lanes.sum * share + total;
  return share;
}

/// Rounds pairs of keys' weights to bf16, and what that lacks: [keys][16] -> [steps of 32 keys][input_parts][16
/// pairs][16][2].
inline void pack_weights(const float* weights, int64_t keys, uint16_t* to) {
  for (int64_t j = 0; j < keys; j += tile_inputs, to += input_parts * tile) {
    for (int64_t pair = 0; pair < tile_size; ++pair) {
      const float* from = weights + (j + 2 * pair) * tile_size;
      Pair rest{load(from), load(from + tile_size)};
      for (int part = 0; part < input_parts; ++part) {
        const auto both = reinterpret_cast<__m512i>(rounded(rest));  // the numbers of the first key, then the second's
        const auto first = reinterpret_cast<Words>(
            _mm512_maskz_cvtepu16_epi32(0xffff, _mm512_maskz_extracti64x4_epi64(0xff, both, 0)));
        const auto second =
            reinterpret_cast<Words>(_mm512_maskz_cvtepu16_epi32(0xffff, _mm512_maskz_extracti64x4_epi64(0xff, both, 1)))
            << 16;
        put(to + part * tile + pair * tile_inputs, first | second);
        rest = {rest.low - reinterpret_cast<Floats>(first << 16), rest.high - reinterpret_cast<Floats>(second)};
      }
    }
  }
}

/// Adds sums [16 numbers][16 rows] to the rows' results from number `column` on, which are multiplied by `share`
/// before.
inline void add_columns(const QueryRow* rows, int64_t count, Floats share, const float* sums, int64_t column) {
  Floats v[tile_size];
  for (int i = 0; i < tile_size; ++i) v[i] = load(sums + tile_size * i);
  transpose(v);
  for (int64_t r = 0; r < count; ++r) {
    float* out = rows[r].out + column;
    put(out, load(out) * share[r] + v[r]);
  }
}

void attend_sixteen(const AttendRows& a, QueryRow* rows, int64_t count) {
  alignas(64) float scores[span_keys * tile_size], sums[4 * tile_size * tile_size];
  alignas(64) uint16_t weights[key_steps * input_parts * tile],
      queries[max_tiled_width / tile_inputs * input_parts * tile];
  Lanes lanes = lanes_of(a, rows, count);
  if (lanes.begin >= lanes.end) return;
  const float* q[tile_size];
  for (int64_t r = 0; r < count; ++r) q[r] = rows[r].q;
  pack_rows([&](int64_t r) { return q[r]; }, count, a.d, tile, queries);
  const auto *keys = reinterpret_cast<const uint16_t*>(a.packed_keys),
             *values = reinterpret_cast<const uint16_t*>(a.packed_values);
  const int64_t steps = steps_of(a.d);
  for (int64_t j = lanes.begin; j < lanes.end; j += keys_together)
    multiply_column<4>(keys + j / tile_size * steps * tile, steps * tile, queries, steps, scores + j * tile_size);
  const Floats share = weights_of(a, lanes, scores);
  pack_weights(scores + lanes.begin * tile_size, lanes.end - lanes.begin, weights);
  const int64_t columns = (a.d + tile_size - 1) / tile_size, first = lanes.begin / tile_inputs,
                last = lanes.end / tile_inputs;
  for (int64_t c = 0; c < columns; c += 4) {
    multiply_columns(columns - c, values + (c * key_steps + first) * tile, key_steps * tile, weights, last - first,
                     sums);
    for (int64_t i = c; i < columns && i < c + 4; ++i)
      add_columns(rows, count, share, sums + (i - c) * tile_size * tile_size, i * tile_size);
  }
  for (int64_t r = 0; r < count; ++r) {
    rows[r].largest = lanes.largest[r];
    rows[r].sum = lanes.sum[r];
  }
}

void attend_rows(const AttendRows& a) {
  const Configuration configuration;
  _tile_loadconfig(&configuration);
  for (int64_t r = 0; r < a.count; r += tile_size)
    attend_sixteen(a, a.rows + r, a.count - r < tile_size ? a.count - r : tile_size);
  _tile_release();
}

}  // namespace

}  // namespace pm::ops::amx
