// SPDX-License-Identifier: Apache-2.0
// The products of tiles.h by AMX. Sums are computed as tiles of W x^T, so that weights are tiles as they are stored,
// and only x, of which there is less, has its pairs of inputs transposed.
#define PM_ISA amx
#define PM_LANES 16
#pragma once
#include "worker/ops/cpu/kernels/tiles.h"
#include "worker/ops/cpu/kernels/vectors.h"

namespace pm::ops::amx {

namespace {

/// The layout of tile registers that LDTILECFG reads: sixteen rows of 64 bytes in each of the eight.
struct alignas(64) Configuration {
  uint8_t palette = 1, start_row = 0, reserved[14]{};
  uint16_t row_bytes[16]{64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16]{16, 16, 16, 16, 16, 16, 16, 16};
};

constexpr int64_t tile = tile_size * tile_inputs;  // bf16 numbers, as many bytes as 16 x 16 sums

/// Two vectors of fp32 numbers, of consecutive inputs.
struct Pair {
  Floats low, high;
};

inline Pair load_pair(const float* from, int64_t count) {
  const auto mask = [](int64_t lanes) {
    return static_cast<__mmask16>(lanes >= 16 ? 0xffff : lanes <= 0 ? 0 : (1 << lanes) - 1);
  };
  return {reinterpret_cast<Floats>(_mm512_maskz_loadu_ps(mask(count), from)),
          reinterpret_cast<Floats>(_mm512_maskz_loadu_ps(mask(count - 16), from + 16))};
}

/// Rounds 32 numbers to bf16.
inline Words rounded(Pair v) {
  return reinterpret_cast<Words>(
      _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(v.high), reinterpret_cast<__m512>(v.low)));
}

/// Returns what the rounded numbers lack; 0 for infinities and NaNs. Masked forms: GCC 12 warns about its own header in
/// the plain ones.
template <int Half>
inline Floats lacking(Floats whole, Words rounded) {
  const __m256i half = _mm512_maskz_extracti64x4_epi64(0xff, reinterpret_cast<__m512i>(rounded), Half);
  const auto hi = reinterpret_cast<Floats>(reinterpret_cast<Words>(_mm512_maskz_cvtepu16_epi32(0xffff, half)) << 16);
  const __mmask16 finite =
      _mm512_cmp_ps_mask(reinterpret_cast<__m512>(hi - hi), reinterpret_cast<__m512>(Floats{}), _CMP_EQ_OQ);
  return reinterpret_cast<Floats>(
      _mm512_maskz_sub_ps(finite, reinterpret_cast<__m512>(whole), reinterpret_cast<__m512>(hi)));
}
inline Pair lacking(Pair v, Words rounded) { return {lacking<0>(v.low, rounded), lacking<1>(v.high, rounded)}; }

inline void put(uint16_t* to, Words value) { __builtin_memcpy(to, &value, sizeof value); }

/// Packs up to 16 rows, of which row(r) is the address, in parts that lie `part_size` numbers apart: their pairs of
/// inputs become [steps][input_parts][16 pairs][16 rows][2].
template <typename Row>
inline void pack_rows(const Row& row, int64_t rows, int64_t inputs, int64_t part_size, uint16_t* to) {
  for (int64_t k = 0; k < inputs; k += tile_inputs, to += input_parts * part_size) {
    Words parts[input_parts][tile_size]{};
    for (int64_t r = 0; r < rows; ++r) {
      Pair rest = load_pair(row(r) + k, inputs - k);
      for (int p = 0; p < input_parts; ++p) {
        parts[p][r] = rounded(rest);
        rest = lacking(rest, parts[p][r]);
      }
    }
    for (int p = 0; p < input_parts; ++p) {
      transpose(parts[p]);
      for (int64_t pair = 0; pair < tile_size; ++pair) put(to + p * part_size + pair * tile_inputs, parts[p][pair]);
    }
  }
}

void pack_inputs(const float* x, int64_t rows, int64_t inputs, int64_t stride, int64_t half, uint16_t* to) {
  pack_rows([&](int64_t r) { return x + r * stride; }, rows, inputs, panel_step, to + half * tile_size * tile_inputs);
}

void pack_bf16(const uint16_t* w, int64_t inputs, int64_t row, uint16_t* to) {
  to += row * tile_inputs;
  int64_t k = 0;
  for (; k + tile_inputs <= inputs; k += tile_inputs, to += panel_step) __builtin_memcpy(to, w + k, 64);
  if (k == inputs) return;
  put(to, Words{});
  for (int64_t i = 0; k + i < inputs; ++i) to[i] = w[k + i];
}

void pack_fp32(const float* w, int64_t inputs, int64_t row, uint16_t* to) {
  to += row * tile_inputs;
  for (int64_t k = 0; k < inputs; k += tile_inputs, to += 2 * panel_step) {
    const Pair given = load_pair(w + k, inputs - k);
    const Words hi = rounded(given);
    put(to, hi);
    put(to + panel_step, rounded(lacking(given, hi)));
  }
}

/// Adds the products of the weights in tiles 4 and 5 with a part of x to the sums, tiles 0 to 3.
template <bool Whole>
__attribute__((always_inline)) inline void multiply_tiles(const uint16_t* x) {
  _tile_loadd(6, x, 64);
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(2, 5, 6);
  if constexpr (Whole) {
    _tile_loadd(7, x + tile, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
  }
}

/// Cache lines that are fetched into the second-level cache meanwhile, some in each step.
struct Ahead {
  const uint16_t* from;
  int64_t lines;
};

/// The sums of a panel of weights and a panel of x, of which only the first half is computed unless it is whole. Tile
/// 2 a + b has the outputs of half a and the rows of half b.
template <bool Whole, int WeightParts>
void multiply_panels(const uint16_t* w, const uint16_t* x, int64_t steps, float* sums, bool begins, Ahead ahead) {
  if (begins) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, sums, 64);
    _tile_loadd(2, sums + 512, 64);
    if constexpr (Whole) {
      _tile_loadd(1, sums + 256, 64);
      _tile_loadd(3, sums + 768, 64);
    }
  }
  for (int64_t s = 0; s < steps; ++s, w += WeightParts * panel_step, x += input_parts * panel_step) {
    for (int64_t i = 0; i < ahead.lines; ++i, ahead.from += tile_inputs)
      __builtin_prefetch(ahead.from, /*write=*/0, /*second-level cache*/ 2);
    _tile_loadd(4, w, 64);
    _tile_loadd(5, w + tile, 64);
    for (int64_t p = input_parts - 1; p >= 0; --p) multiply_tiles<Whole>(x + p * panel_step);
    if constexpr (WeightParts == 2) {
      _tile_loadd(4, w + panel_step, 64);
      _tile_loadd(5, w + panel_step + tile, 64);
      for (int64_t p = input_parts - 2; p >= 0; --p) multiply_tiles<Whole>(x + p * panel_step);
    }
  }
  _tile_stored(0, sums, 64);
  _tile_stored(2, sums + 512, 64);
  if constexpr (Whole) {
    _tile_stored(1, sums + 256, 64);
    _tile_stored(3, sums + 768, 64);
  }
}

/// Writes the sums of a tile, [outputs][rows], as y [rows, stride].
void write(const float* sums, int64_t rows, int64_t outputs, float* y, int64_t stride) {
  Floats v[16];
  for (int i = 0; i < 16; ++i) __builtin_memcpy(&v[i], sums + 16 * i, sizeof v[i]);
  transpose(v);
  const auto mask = static_cast<__mmask16>(outputs >= 16 ? 0xffff : (1 << outputs) - 1);
  for (int64_t r = 0; r < rows && r < 16; ++r)
    _mm512_mask_storeu_ps(y + r * stride, mask, reinterpret_cast<__m512>(v[r]));
}

template <int WeightParts>
void multiply_parts(const TileProduct& p) {
  alignas(64) float own[panel * panel];
  const int64_t w_panels = (p.outputs + panel - 1) / panel;
  const int64_t lines = (input_parts * panel + w_panels - 1) / w_panels;  // of the next panel of x in a step
  for (int64_t row = 0; row < p.rows; row += panel) {
    const bool whole = p.rows - row > tile_size;
    for (int64_t n = 0; n < w_panels; ++n) {
      float* sums = p.begins && p.ends ? own : p.sums + (row / panel * w_panels + n) * panel * panel;
      const uint16_t *w = p.w + n * p.steps * WeightParts * panel_step, *x = p.x + row / panel * p.x_panel;
      const Ahead ahead{x + p.x_panel + n * p.steps * lines * tile_inputs, row + panel < p.rows ? lines : 0};
      whole ? multiply_panels<true, WeightParts>(w, x, p.steps, sums, p.begins, ahead)
            : multiply_panels<false, WeightParts>(w, x, p.steps, sums, p.begins, ahead);
      if (!p.ends) continue;
      for (int64_t a = 0; a < 2; ++a) {
        for (int64_t b = 0; b <= static_cast<int64_t>(whole); ++b) {
          const int64_t first = row + b * tile_size, o = n * panel + a * tile_size;
          if (o < p.outputs)
            write(sums + (2 * a + b) * 256, p.rows - first, p.outputs - o, p.y + first * p.stride + o, p.stride);
        }
      }
    }
  }
}

void multiply(const TileProduct& p) {
  const Configuration configuration;
  _tile_loadconfig(&configuration);
  p.w_parts == 1 ? multiply_parts<1>(p) : multiply_parts<2>(p);
  _tile_release();
}

}  // namespace

}  // namespace pm::ops::amx
