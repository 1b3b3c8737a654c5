// SPDX-License-Identifier: Apache-2.0
// The products of packed_product.h by vectors of eight floats, compiled with PM_ISA (a namespace) and PM_LANES 8
// (vectors.h). Lanes are outputs, and each input of a row is broadcast to them (outer products), so that sixteen
// registers hold the sums of six rows and two vectors, and no lanes are added at the end. Weights are packed for it, by
// blocks, once for all rows of a call (Goto and van de Geijn 2008).
#pragma once
#include "worker/ops/cpu/kernels/gemv_kernel.h"
#include "worker/ops/cpu/kernels/packed_product.h"

namespace pm::ops::PM_ISA {

namespace {

constexpr int outer_rows = 6, outer_outputs = 2 * PM_LANES;
/// Words whose packed weights stay in the cache for all tiles: 32 KiB.
constexpr int64_t outer_pass = 512;
constexpr int64_t sums_rows = 264, sums_panels = 4;  // of sums that stay in the second-level cache: 66 KiB

/// Operands in fp32, one of which is a word of 32 bits.
struct Fp32Words {
  static constexpr OperandType type = OperandType::Fp32;
  static constexpr int64_t inputs = 1;  ///< of a word
  static constexpr int64_t chain = 64;  ///< words that are added one by one; longer chains round more
  using Sums = Floats;
  static Floats add_products(Floats sums, Floats weights, Floats x) { return sums + weights * x; }
};

/// Writes words [begin, end) of PM_LANES rows of the weights as [words][outer_outputs].
template <typename Weights>
void pack_lanes(Weights w, int64_t begin, int64_t end, float* to) {
  int64_t n = begin / Weights::span;
  for (; (n + 1) * Weights::span <= end; ++n) {
    Floats blocks[Weights::vectors][PM_LANES];
#pragma GCC unroll 8
    for (int o = 0; o < PM_LANES; ++o) {
      const Vectors<Weights::vectors> weights = w.at(o, n);
#pragma GCC unroll 8
      for (int v = 0; v < Weights::vectors; ++v) blocks[v][o] = weights.of[v];
    }
#pragma GCC unroll 8
    for (int v = 0; v < Weights::vectors; ++v) {
      transpose(blocks[v]);
#pragma GCC unroll 8
      for (int i = 0; i < PM_LANES; ++i, to += outer_outputs) put(to, blocks[v][i]);
    }
  }
  for (int64_t k = n * Weights::span; k < end; ++k, to += outer_outputs)
    for (int o = 0; o < PM_LANES; ++o) to[o] = w.one(o, k);
}

/// The same of fewer rows; those that lack are 0.
template <typename Weights>
void pack_some_lanes(Weights w, int64_t rows, int64_t begin, int64_t end, float* to) {
  for (int64_t k = begin; k < end; ++k, to += outer_outputs)
    for (int o = 0; o < PM_LANES; ++o) to[o] = o < rows ? w.one(o, k) : 0;
}

/// Writes Rows rows of x, packed as [words][Rows], times packed weights to sums [Rows][2], or adds them, a chain of
/// words at a time. It is no part of its callers, in which GCC would keep sums in memory.
template <typename Operand, int Rows>
__attribute__((noinline)) void multiply_panel(const float* x, const float* panel, int64_t words, bool adds,
                                              typename Operand::Sums* sums) {
  do {
    typename Operand::Sums low[Rows]{}, high[Rows]{};
    const int64_t some = words < Operand::chain ? words : Operand::chain;
    for (int64_t k = 0; k < some; ++k, x += Rows, panel += outer_outputs) {
      const Floats a = load(panel), b = load(panel + PM_LANES);
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        const Floats word = reinterpret_cast<Floats>(Words{} + at<uint32_t>(x + r));
        low[r] = Operand::add_products(low[r], a, word);
        high[r] = Operand::add_products(high[r], b, word);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      sums[2 * r] = adds ? sums[2 * r] + low[r] : low[r];
      sums[2 * r + 1] = adds ? sums[2 * r + 1] + high[r] : high[r];
    }
    adds = true;
    words -= some;
  } while (words > 0);
}

template <typename Operand, int Rows>
void multiply_panel_by(int64_t rows, const float* x, const float* panel, int64_t words, bool adds,
                       typename Operand::Sums* sums) {
  if (rows == Rows) return multiply_panel<Operand, Rows>(x, panel, words, adds, sums);
  if constexpr (Rows > 1) multiply_panel_by<Operand, Rows - 1>(rows, x, panel, words, adds, sums);
}

/// Some tiles, of at most sums_rows rows, and outputs [o, o + outputs), at most sums_panels panels.
template <typename Operand, typename Weights>
void multiply_block(const Gemv& g, const PackedProduct& p, int64_t o, int64_t outputs, TileRows split,
                    int64_t first_tile, int64_t last_tile) {
  alignas(64) float panel[outer_pass * outer_outputs];
  typename Operand::Sums sums[sums_panels][sums_rows][2];
  const auto* x = static_cast<const float*>(p.x);
  const int64_t row = first_row(split, first_tile), rows = first_row(split, last_tile) - row,
                words = (g.in + Operand::inputs - 1) / Operand::inputs, words_of_x = p.x_inputs / Operand::inputs;
  int64_t begin = 0;
  do {
    const int64_t end = words - begin < outer_pass ? words : begin + outer_pass;
    for (int64_t i = 0; i < outputs; i += PM_LANES) {
      const Weights w(g, o + i);
      float* to = panel + i % outer_outputs;
      if (outputs - i >= PM_LANES)
        pack_lanes(w, begin, end, to);
      else
        pack_some_lanes(w, outputs - i, begin, end, to);
      if (i % outer_outputs == 0 && outputs - i > PM_LANES) continue;  // the panel's second half follows
      for (int64_t t = first_tile; t < last_tile; ++t) {
        const int64_t first = first_row(split, t), count = first_row(split, t + 1) - first;
        multiply_panel_by<Operand, outer_rows>(count, x + first * words_of_x + begin * count, panel, end - begin,
                                               begin > 0, sums[i / outer_outputs][first - row]);
      }
    }
    begin += outer_pass;
  } while (begin < words);
  auto* y = static_cast<float*>(p.y) + row * p.stride + o - g.first;
  for (int64_t r = 0; r < rows; ++r, y += p.stride)
    for (int64_t i = 0; i < outputs; i += outer_outputs)
      __builtin_memcpy(y + i, sums[i / outer_outputs][r],
                       sizeof(float) * (outputs - i < outer_outputs ? outputs - i : outer_outputs));
}

template <typename Operand, typename Weights>
void multiply_outer(const Gemv& g, const PackedProduct& p) {
  const TileRows split = tile_rows_of(p.rows, tiles_of(p.rows, outer_rows));
  constexpr int64_t tiles = sums_rows / outer_rows, outputs = sums_panels * outer_outputs;
  for (int64_t t = p.first_tile; t < p.first_tile + p.tiles; t += tiles) {
    const int64_t left = p.first_tile + p.tiles - t;
    for (int64_t o = g.first; o < g.last; o += outputs)
      multiply_block<Operand, Weights>(g, p, o, g.last - o < outputs ? g.last - o : outputs, split, t,
                                       t + (left < tiles ? left : tiles));
  }
}

void multiply_numbers(const Gemv& g, const PackedProduct& p) {
  with_weights(g, [&]<typename Weights>() { multiply_outer<Fp32Words, Weights>(g, p); });
}

void pack_numbers(const float* x, int64_t rows, int64_t inputs, int64_t stride, void* to, RoundedRow*) {
  auto* next = static_cast<float*>(to);
  for (int64_t k = 0; k < inputs; ++k)
    for (int64_t r = 0; r < rows; ++r) *next++ = x[r * stride + k];
}

constexpr PackedProducts number_products{.operands = OperandType::Fp32,
                                         .vector = 1,
                                         .tile_rows = outer_rows,
                                         .tile_outputs = outer_outputs,
                                         .pass = outer_pass,
                                         .bytes = sizeof(float),
                                         .pack = pack_numbers,
                                         .multiply = nullptr,
                                         .multiply_any = multiply_numbers};

}  // namespace

}  // namespace pm::ops::PM_ISA
