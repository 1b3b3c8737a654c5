// SPDX-License-Identifier: Apache-2.0
// The products of packed_product.h by AVX-512, compiled with PM_ISA (a namespace) and PM_LANES 16 (vectors.h).
#pragma once
#include "worker/ops/cpu/kernels/packed_product.h"
#include "worker/ops/cpu/kernels/vectors.h"

namespace pm::ops::PM_ISA {

namespace {

/// Operands in fp32.
struct Fp32Operands {
  using Number = float;
  using Vector = Floats;
  static constexpr int64_t vector = PM_LANES;
  static Vector load(const Number* from) { return PM_ISA::load(from); }
  static Floats add_products(Floats sums, Vector a, Vector b) { return sums + a * b; }
  static void put(Number* to, const float* from) { PM_ISA::put(to, load(from)); }
};

#ifdef __AVX512BF16__
/// Operands in bf16. x is rounded to nearest, ties to even.
struct Bf16Operands {
  using Number = uint16_t;
  using Vector = __m512bh;
  static constexpr int64_t vector = 32;
  static Vector load(const Number* from) { return at<Vector>(from); }
  static Floats add_products(Floats sums, Vector a, Vector b) {
    return reinterpret_cast<Floats>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(sums), a, b));
  }
  static void put(Number* to, const float* from) {
    const __m512bh both = _mm512_cvtne2ps_pbh(at<__m512>(from + 16), at<__m512>(from));
    __builtin_memcpy(to, &both, sizeof both);
  }
};
#endif

/// Inputs whose weights and packed rows, of a tile each, stay in the first-level cache: ten rows of 2 KiB.
template <typename Operand>
constexpr int64_t pass = 2048 / static_cast<int64_t>(sizeof(typename Operand::Number));

using Four = float __attribute__((vector_size(16)));

/// Returns the sums of the lanes of four vectors.
inline Four sums_of(Floats a, Floats b, Floats c, Floats d) {
  const auto interleaved = [](Floats x, Floats y) {
    return __builtin_shufflevector(x, y, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29) +
           __builtin_shufflevector(x, y, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
  };
  const Floats x = interleaved(a, b), y = interleaved(c, d);
  const Floats quarters = __builtin_shufflevector(x, y, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
                          __builtin_shufflevector(x, y, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
  const auto half = __builtin_shufflevector(quarters, quarters, 0, 1, 2, 3, 4, 5, 6, 7) +
                    __builtin_shufflevector(quarters, quarters, 8, 9, 10, 11, 12, 13, 14, 15);
  return __builtin_shufflevector(half, half, 0, 1, 2, 3) + __builtin_shufflevector(half, half, 4, 5, 6, 7);
}

constexpr int tile_outputs = 4;

/// The next weights, which are fetched into the second-level cache meanwhile: some inputs of some rows.
struct NextWeights {
  const char* from = nullptr;
  int64_t row_bytes = 0, rows = 0, inputs = 0;
};

/// Weights of a pass: rows `stride` numbers apart.
template <typename Number>
struct PassWeights {
  const Number* from;
  int64_t stride, inputs;  ///< whole vectors of inputs
};

/// Adds Rows rows of x, a tile, times Outputs rows of the weights to y, or writes them first.
template <typename Operand, int Rows, int Outputs>
__attribute__((always_inline)) inline void multiply_tile(PassWeights<typename Operand::Number> w,
                                                         const typename Operand::Number* x, bool adds, float* y,
                                                         int64_t y_stride, NextWeights next) {
  typename Operand::Vector weights[Outputs];
  Floats sums[Rows][Outputs]{};
  for (int64_t n = 0; n < w.inputs; n += Operand::vector, x += Rows * Operand::vector) {
    for (int o = 0; o < Outputs; ++o) weights[o] = Operand::load(w.from + o * w.stride + n);
    for (int r = 0; r < Rows; ++r) {
      const typename Operand::Vector row = Operand::load(x + r * Operand::vector);
      for (int o = 0; o < Outputs; ++o) sums[r][o] = Operand::add_products(sums[r][o], weights[o], row);
    }
    if (n < next.inputs) {
      for (int64_t i = 0; i < next.rows; ++i)
        __builtin_prefetch(next.from + i * next.row_bytes + n * sizeof(*x), /*write=*/0, /*second-level cache*/ 2);
    }
  }
  for (int r = 0; r < Rows; ++r, y += y_stride) {
    Four sum =
        sums_of(sums[r][0], sums[r][Outputs > 1 ? 1 : 0], sums[r][Outputs > 2 ? 2 : 0], sums[r][Outputs > 3 ? 3 : 0]);
    if (adds) {
      Four before{};
      __builtin_memcpy(&before, y, sizeof(float) * Outputs);
      sum += before;
    }
    __builtin_memcpy(y, &sum, sizeof(float) * Outputs);
  }
}

template <typename Operand, int Outputs, int Rows>
void multiply_rows(int64_t rows, PassWeights<typename Operand::Number> w, const typename Operand::Number* x, bool adds,
                   float* y, int64_t y_stride, NextWeights next) {
  if (rows == Rows) return multiply_tile<Operand, Rows, Outputs>(w, x, adds, y, y_stride, next);
  if constexpr (Rows > 1) multiply_rows<Operand, Outputs, Rows - 1>(rows, w, x, adds, y, y_stride, next);
}

/// One pass: all tiles, Outputs outputs from output `o` on, and the inputs from p.first + `begin` on. The weights stay
/// in the first-level cache.
template <typename Operand, int MostRows, int Outputs>
void multiply_pass(const PackedProduct& p, int64_t o, int64_t begin, PassWeights<typename Operand::Number> w,
                   NextWeights ahead) {
  using Number = typename Operand::Number;
  const auto* x = static_cast<const Number*>(p.x);
  const int64_t tiles_of_a_row = (p.tiles + tile_outputs - 1) / tile_outputs,
                part = (w.inputs / Operand::vector + tiles_of_a_row - 1) / tiles_of_a_row * Operand::vector;
  const TileRows split = tile_rows_of(p.rows, tiles_of(p.rows, MostRows));
  NextWeights next = ahead;
  for (int64_t t = 0; t < p.tiles; ++t) {
    const int64_t first = first_row(split, p.first_tile + t),
                  rows = split.least + (p.first_tile + t < split.larger ? 1 : 0);
    if (p.tiles > 1) {  // each tile fetches a part of a row
      const int64_t row = t / tiles_of_a_row, at = t % tiles_of_a_row * part;
      next.from = ahead.from + row * ahead.row_bytes + at * static_cast<int64_t>(sizeof(Number));
      next.rows = row < ahead.rows ? 1 : 0;
      next.inputs = ahead.inputs - at < part ? ahead.inputs - at : part;
    }
    multiply_rows<Operand, Outputs, MostRows>(rows, w, x + first * p.x_inputs + (p.first + begin) * rows,
                                              p.first + begin > 0, p.y + first * p.stride + o, p.stride, next);
  }
}

/// Outputs outputs from output `o` on, and inputs [begin, end). Those beyond the last whole vector are a pass of their
/// own, of weights that are padded with zeros.
template <typename Operand, int MostRows, int Outputs>
void multiply_outputs(const PackedProduct& p, int64_t o, int64_t begin, int64_t end) {
  using Number = typename Operand::Number;
  const Number* w = static_cast<const Number*>(p.w) + o * p.w_stride;
  const int64_t left = p.outputs - o - Outputs;
  NextWeights next{.row_bytes = p.w_stride * static_cast<int64_t>(sizeof(Number)),
                   .rows = left < tile_outputs ? left : tile_outputs};
  const int64_t whole = end - (end - begin) % Operand::vector;
  for (int64_t at = begin; at < whole; at += pass<Operand>) {
    next.from = reinterpret_cast<const char*>(w + Outputs * p.w_stride + at);
    next.inputs = whole - at < pass<Operand> ? whole - at : pass<Operand>;
    multiply_pass<Operand, MostRows, Outputs>(p, o, at, {w + at, p.w_stride, next.inputs}, next);
  }
  if (whole == end && begin < end) return;
  Number padded[Outputs][Operand::vector]{};
  for (int i = 0; i < Outputs; ++i)
    for (int64_t k = whole; k < end; ++k) padded[i][k - whole] = w[i * p.w_stride + k];
  multiply_pass<Operand, MostRows, Outputs>(p, o, whole,
                                            {padded[0], Operand::vector, whole < end ? Operand::vector : 0}, {});
}

template <typename Operand, int MostRows>
void multiply_all_outputs(const PackedProduct& p, int64_t begin, int64_t end) {
  int64_t o = 0;
  for (; o + tile_outputs <= p.outputs; o += tile_outputs)
    multiply_outputs<Operand, MostRows, tile_outputs>(p, o, begin, end);
  for (; o < p.outputs; ++o) multiply_outputs<Operand, MostRows, 1>(p, o, begin, end);
}

constexpr int streamed_rows = 2, most_passes = 64;
constexpr int64_t lines_ahead = 48;  // measured (bench/gemv.sh)

/// One or two rows, whose time is that of reading the weights: those of Outputs outputs from output `o` on, one row of
/// them after the other, as they lie in memory. The sums are those of multiply_outputs().
template <typename Operand, int Rows, int Outputs>
void stream_outputs(const PackedProduct& p, int64_t o) {
  using Number = typename Operand::Number;
  const int64_t whole = p.inputs / Operand::vector * Operand::vector;
  Floats sums[most_passes][Rows][Outputs];
  int64_t passes = 0;
  for (int i = 0; i < Outputs; ++i) {
    const Number *x = static_cast<const Number*>(p.x), *w = static_cast<const Number*>(p.w) + (o + i) * p.w_stride;
    passes = 0;
    for (int64_t n = 0; n < whole; ++passes) {
      Floats own[Rows]{};
      const int64_t end = whole - n < pass<Operand> ? whole : n + pass<Operand>;
      for (; n < end; n += Operand::vector, x += Rows * Operand::vector) {
        __builtin_prefetch(reinterpret_cast<const char*>(w + n) + 64 * lines_ahead, /*write=*/0, /*L2*/ 2);
        const typename Operand::Vector weights = Operand::load(w + n);
        for (int r = 0; r < Rows; ++r)
          own[r] = Operand::add_products(own[r], weights, Operand::load(x + r * Operand::vector));
      }
      for (int r = 0; r < Rows; ++r) sums[passes][r][i] = own[r];
    }
    if (whole == p.inputs) continue;
    Number padded[Operand::vector]{};
    for (int64_t k = whole; k < p.inputs; ++k) padded[k - whole] = w[k];
    for (int r = 0; r < Rows; ++r)
      sums[passes][r][i] =
          Operand::add_products(Floats{}, Operand::load(padded), Operand::load(x + r * Operand::vector));
    ++passes;
  }
  for (int r = 0; r < Rows; ++r) {
    Four total{};
    for (int64_t n = 0; n < passes; ++n) {
      const auto& of = sums[n][r];
      const Four sum = sums_of(of[0], of[Outputs > 1 ? 1 : 0], of[Outputs > 2 ? 2 : 0], of[Outputs > 3 ? 3 : 0]);
      total = n == 0 ? sum : sum + total;
    }
    __builtin_memcpy(p.y + r * p.stride + o, &total, sizeof(float) * Outputs);
  }
}

template <typename Operand, int Rows>
void stream(const PackedProduct& p) {
  int64_t o = 0;
  for (; o + tile_outputs <= p.outputs; o += tile_outputs) stream_outputs<Operand, Rows, tile_outputs>(p, o);
  for (; o < p.outputs; ++o) stream_outputs<Operand, Rows, 1>(p, o);
}

/// A single tile reads the weights in the order of memory. Several have all outputs of a pass together, so that their
/// rows stay in the second-level cache.
template <typename Operand, int MostRows>
void multiply(const PackedProduct& p) {
  if (p.rows <= streamed_rows && p.first == 0 && p.inputs < (most_passes - 1) * pass<Operand>)
    return p.rows == 1 ? stream<Operand, 1>(p) : stream<Operand, 2>(p);
  const int64_t at_once = p.tiles > 1 && p.inputs > 0 ? pass<Operand> : p.inputs;
  int64_t begin = 0;
  do {
    multiply_all_outputs<Operand, MostRows>(p, begin, p.inputs - begin < at_once ? p.inputs : begin + at_once);
    begin += at_once;
  } while (begin < p.inputs);
}

template <typename Operand>
void pack(const float* x, int64_t rows, int64_t inputs, int64_t stride, void* to) {
  auto* next = static_cast<typename Operand::Number*>(to);
  int64_t k = 0;
  for (; k + Operand::vector <= inputs; k += Operand::vector)
    for (int64_t r = 0; r < rows; ++r, next += Operand::vector) Operand::put(next, x + r * stride + k);
  for (int64_t r = 0; k < inputs && r < rows; ++r, next += Operand::vector) {
    float some[Operand::vector]{};
    for (int64_t i = 0; k + i < inputs; ++i) some[i] = x[r * stride + k + i];
    Operand::put(next, some);
  }
}

template <typename Operand, int MostRows>
constexpr PackedProducts packed_products{.vector = Operand::vector,
                                         .tile_rows = MostRows,
                                         .pass = pass<Operand>,
                                         .bytes = sizeof(typename Operand::Number),
                                         .pack = pack<Operand>,
                                         .multiply = multiply<Operand, MostRows>};

}  // namespace

}  // namespace pm::ops::PM_ISA
