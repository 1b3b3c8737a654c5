// SPDX-License-Identifier: Apache-2.0
// The products of packed_product.h by AVX-512, and by AVX2 those of few rows, compiled with PM_ISA (a namespace) and
// PM_LANES 16 or 8 (vectors.h).
#pragma once
#include "worker/ops/cpu/kernels/kernels.h"
#include "worker/ops/cpu/kernels/packed_operands.h"
#include "worker/ops/cpu/kernels/packed_product.h"
#include "worker/ops/cpu/kernels/vectors.h"

namespace pm::ops::PM_ISA {

namespace {

/// Rows of weights that are stored as operands, from one row on. The member functions take a row and an input.
template <typename Operand>
struct StoredWeights {
  using Number = typename Operand::Number;
  static constexpr bool widened = false;
  static constexpr int64_t vector_bytes = sizeof(typename Operand::Vector);
  const Number* w;
  int64_t stride;
  StoredWeights(const Number* w, int64_t stride) : w(w), stride(stride) {}
  StoredWeights(const PackedProduct& p, int64_t o)
      : StoredWeights(static_cast<const Number*>(p.w) + o * p.w_stride, p.w_stride) {}
  typename Operand::Vector at(int64_t o, int64_t n) const { return Operand::load(w + o * stride + n); }
  /// Copies some inputs of a row, fewer than a vector has.
  void copy(int64_t o, int64_t n, int64_t count, Number* to) const {
    for (int64_t k = 0; k < count; ++k) to[k] = w[o * stride + n + k];
  }
  const char* address(int64_t o, int64_t n) const { return reinterpret_cast<const char*>(w + o * stride + n); }
  static void fetch_scales(int64_t, int64_t, int64_t) {}
};

/// Rows of weights in a floating-point type, which are widened to fp32.
template <typename T>
struct WidenedWeights {
  static constexpr bool widened = true;
  static constexpr int64_t vector_bytes = PM_LANES * sizeof(T);
  const T* w;
  int64_t stride;
  WidenedWeights(const PackedProduct& p, int64_t o)
      : w(static_cast<const T*>(p.w) + o * p.w_stride), stride(p.w_stride) {}
  Floats at(int64_t o, int64_t n) const { return load(w + o * stride + n); }
  void copy(int64_t o, int64_t n, int64_t count, float* to) const {
    for (int64_t k = 0; k < count; ++k) to[k] = one(w[o * stride + n + k]);
  }
  const char* address(int64_t o, int64_t n) const { return reinterpret_cast<const char*>(w + o * stride + n); }
  static void fetch_scales(int64_t, int64_t, int64_t) {}
};

#ifdef __AVX512BF16__
/// What weights as codes have in common: `Bits` of a code. `Of` returns 32 of them as bf16 numbers. Groups have 2^Log2
/// inputs, or if it is 0 what the product says.
template <typename Of, int Bits, int Log2>
struct CodedWeights {
  using Number = uint16_t;
  static constexpr bool widened = true;
  static constexpr int64_t vector_bytes = 32 * Bits / 8;
  const uint8_t* w;
  const BF16* scales;
  int64_t stride, scale_stride;
  int log2_of_group;
  CodedWeights(const PackedProduct& p, int64_t o)
      : w(static_cast<const uint8_t*>(p.w) + o * p.w_stride),
        scales(reinterpret_cast<const BF16*>(p.codes.scales) + o * p.codes.scale_stride),
        stride(p.w_stride),
        scale_stride(p.codes.scale_stride),
        log2_of_group(p.codes.log2_of_group) {}
  const BF16* scale(int64_t o, int64_t n) const {
    return scales + o * scale_stride + (n >> (Log2 > 0 ? Log2 : log2_of_group));
  }
  __m512bh at(int64_t o, int64_t n) const { return Of::decoded(w + o * stride + n * Bits / 8, all(scale(o, n))); }
  void copy(int64_t o, int64_t n, int64_t count, Number* to) const {
    uint8_t codes[32]{};  // a row may end with this number of inputs, or with the group of four-bit codes
    for (int64_t k = 0; k < (Bits == 8 ? count : 16); ++k) codes[k] = w[o * stride + n * Bits / 8 + k];
    Number numbers[32];
    const __m512bh all_of_them = Of::decoded(codes, all(scale(o, n)));
    __builtin_memcpy(numbers, &all_of_them, sizeof numbers);
    for (int64_t k = 0; k < count; ++k) to[k] = numbers[k];
  }
  const char* address(int64_t o, int64_t n) const {
    return reinterpret_cast<const char*>(w + o * stride + n * Bits / 8);
  }
  /// Fetches the scales of some rows, for a pass of inputs from `n` on.
  void fetch_scales(int64_t o, int64_t rows, int64_t n) const {
    for (const int64_t end = o + rows; o < end; ++o) {
      const BF16* from = scale(o, n);
      __builtin_prefetch(from);
      __builtin_prefetch(from + (pass<Bf16Operands> >> 5));
    }
  }
};

/// Codes of eight bits.
template <int Log2>
struct ByteWeights : CodedWeights<ByteWeights<Log2>, 8, Log2> {
  using CodedWeights<ByteWeights<Log2>, 8, Log2>::CodedWeights;
  static __m512bh decoded(const uint8_t* codes, Floats scale) {
    const auto* from = reinterpret_cast<const int8_t*>(codes);
    return _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(load(from + 16) * scale),
                               reinterpret_cast<__m512>(load(from) * scale));
  }
};

/// Codes of four bits, in groups of 32 inputs.
struct NibbleWeights : CodedWeights<NibbleWeights, 4, 5> {
  using CodedWeights::CodedWeights;
  /// A byte has an input of the group's first half in its low bits, and one of the second in its high bits. Codes are
  /// indices, of which the permutation of 32 words reads five bits: the table stands twice.
  static __m512bh decoded(const uint8_t* codes, Floats scale) {
    const Floats values = Floats{-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7} * scale;
    const __m512bh table = _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(values), reinterpret_cast<__m512>(values));
    const Halves low = reinterpret_cast<Halves>(_mm256_cvtepu8_epi16(PM_ISA::at<__m128i>(codes))), high = low >> 4;
    const auto indices = __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
                                                 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31);
    return reinterpret_cast<__m512bh>(_mm512_maskz_permutexvar_epi16(~__mmask32{}, reinterpret_cast<__m512i>(indices),
                                                                     reinterpret_cast<__m512i>(table)));
  }
};
#endif

/// Returns the sums of the lanes of four vectors.
template <typename Vector>
inline auto sums_of(Vector a, Vector b, Vector c, Vector d) {
#if PM_LANES == 8
  const auto interleaved = [](Vector x, Vector y) {
    return __builtin_shufflevector(x, y, 0, 8, 1, 9, 4, 12, 5, 13) +
           __builtin_shufflevector(x, y, 2, 10, 3, 11, 6, 14, 7, 15);
  };
  const Vector x = interleaved(a, b), y = interleaved(c, d),
               half = __builtin_shufflevector(x, y, 0, 1, 8, 9, 4, 5, 12, 13) +
                      __builtin_shufflevector(x, y, 2, 3, 10, 11, 6, 7, 14, 15);
#else
  const auto interleaved = [](Vector x, Vector y) {
    return __builtin_shufflevector(x, y, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29) +
           __builtin_shufflevector(x, y, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
  };
  const Vector x = interleaved(a, b), y = interleaved(c, d);
  const Vector quarters = __builtin_shufflevector(x, y, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
                          __builtin_shufflevector(x, y, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
  const auto half = __builtin_shufflevector(quarters, quarters, 0, 1, 2, 3, 4, 5, 6, 7) +
                    __builtin_shufflevector(quarters, quarters, 8, 9, 10, 11, 12, 13, 14, 15);
#endif
  return __builtin_shufflevector(half, half, 0, 1, 2, 3) + __builtin_shufflevector(half, half, 4, 5, 6, 7);
}
/// Those four sums.
template <typename Operand>
using Four = decltype(sums_of(typename Operand::Sums{}, typename Operand::Sums{}, typename Operand::Sums{},
                              typename Operand::Sums{}));

constexpr int tile_outputs = 4;

/// The next weights, which are fetched into the second-level cache meanwhile: of `rows` rows, `step` bytes for each
/// vector of inputs.
struct NextWeights {
  const char* from = nullptr;
  int64_t row_bytes = 0, rows = 0, inputs = 0, step = 0;
};

/// Adds Rows rows of x, a tile, times Outputs rows of the weights to y, or writes them first. These are inputs [begin,
/// begin + inputs) of the weights, whole vectors.
template <typename Operand, int Rows, int Outputs, typename Weights>
__attribute__((always_inline)) inline void multiply_tile(Weights w, int64_t begin, int64_t inputs,
                                                         const typename Operand::Number* x, bool adds,
                                                         typename Operand::Result* y, int64_t y_stride,
                                                         NextWeights next) {
  typename Operand::Vector weights[Outputs];
  typename Operand::Sums sums[Rows][Outputs]{};
  for (int64_t n = 0; n < inputs; n += Operand::vector, x += Rows * Operand::vector) {
    for (int o = 0; o < Outputs; ++o) weights[o] = w.at(o, begin + n);
    for (int r = 0; r < Rows; ++r) {
      const typename Operand::Vector row = Operand::load(x + r * Operand::vector);
      for (int o = 0; o < Outputs; ++o) sums[r][o] = Operand::add_products(sums[r][o], weights[o], row);
    }
    if (n < next.inputs) {
      for (int64_t i = 0; i < next.rows; ++i)
        __builtin_prefetch(next.from + i * next.row_bytes, /*write=*/0, /*second-level cache*/ 2);
      next.from += next.step;
    }
  }
  for (int r = 0; r < Rows; ++r, y += y_stride) {
    Four<Operand> sum =
        sums_of(sums[r][0], sums[r][Outputs > 1 ? 1 : 0], sums[r][Outputs > 2 ? 2 : 0], sums[r][Outputs > 3 ? 3 : 0]);
    if (adds) {
      Four<Operand> before{};
      __builtin_memcpy(&before, y, sizeof(*y) * Outputs);
      sum += before;
    }
    __builtin_memcpy(y, &sum, sizeof(*y) * Outputs);
  }
}

template <typename Operand, int Outputs, int Rows, typename Weights>
void multiply_rows(int64_t rows, Weights w, int64_t begin, int64_t inputs, const typename Operand::Number* x, bool adds,
                   typename Operand::Result* y, int64_t y_stride, NextWeights next) {
  if (rows == Rows) return multiply_tile<Operand, Rows, Outputs>(w, begin, inputs, x, adds, y, y_stride, next);
  if constexpr (Rows > 1) multiply_rows<Operand, Outputs, Rows - 1>(rows, w, begin, inputs, x, adds, y, y_stride, next);
}

/// One pass: all tiles, Outputs outputs from output `o` on, and the inputs from p.first + `first` on, which are those
/// of the weights from `begin` on. The weights stay in the first-level cache.
template <typename Operand, int MostRows, int Outputs, typename Weights>
void multiply_pass(const PackedProduct& p, int64_t o, int64_t first, Weights w, int64_t begin, int64_t inputs,
                   NextWeights ahead) {
  const auto* x = static_cast<const typename Operand::Number*>(p.x);
  const int64_t tiles_of_a_row = (p.tiles + tile_outputs - 1) / tile_outputs,
                part = (inputs / Operand::vector + tiles_of_a_row - 1) / tiles_of_a_row * Operand::vector;
  const TileRows split = tile_rows_of(p.rows, tiles_of(p.rows, MostRows));
  NextWeights next = ahead;
  for (int64_t t = 0; t < p.tiles; ++t) {
    const int64_t row_of_x = first_row(split, p.first_tile + t),
                  rows = split.least + (p.first_tile + t < split.larger ? 1 : 0);
    if (p.tiles < ahead.rows) {  // each tile fetches some rows
      const int64_t row = t * ahead.rows / p.tiles;
      next.from = ahead.from + row * ahead.row_bytes;
      next.rows = (t + 1) * ahead.rows / p.tiles - row;
    } else if (p.tiles > 1) {  // or a part of one
      const int64_t row = t / tiles_of_a_row, at = t % tiles_of_a_row * part;
      next.from = ahead.from + row * ahead.row_bytes + at / Operand::vector * ahead.step;
      next.rows = row < ahead.rows ? 1 : 0;
      next.inputs = ahead.inputs - at < part ? ahead.inputs - at : part;
    }
    multiply_rows<Operand, Outputs, MostRows>(
        rows, w, begin, inputs, x + row_of_x * p.x_inputs + (p.first + first) * rows, p.first + first > 0,
        static_cast<typename Operand::Result*>(p.y) + row_of_x * p.stride + o, p.stride, next);
  }
}

/// Outputs outputs from output `o` on, and inputs [begin, end). Those beyond the last whole vector are a pass of their
/// own, of weights that are padded with zeros. Weights that more than two tiles multiply are widened once.
template <typename Operand, int MostRows, int Outputs, typename Weights>
void multiply_outputs(const PackedProduct& p, int64_t o, int64_t begin, int64_t end) {
  using Number = typename Operand::Number;
  const Weights w(p, o);
  const int64_t left = p.outputs - o - Outputs;
  NextWeights next{.row_bytes = w.address(1, 0) - w.address(0, 0),
                   .rows = left < tile_outputs ? left : tile_outputs,
                   .step = w.address(0, Operand::vector) - w.address(0, 0)};
  const int64_t whole = end - (end - begin) % Operand::vector;
  for (int64_t at = begin; at < whole; at += pass<Operand>) {
    next.from = w.address(Outputs, at);
    next.inputs = whole - at < pass<Operand> ? whole - at : pass<Operand>;
    w.fetch_scales(Outputs, next.rows, at);
    if constexpr (Weights::widened) {
      if (p.tiles > 2) {
        Number wide[Outputs][pass<Operand>];
        for (int i = 0; i < Outputs; ++i)
          for (int64_t n = 0; n < next.inputs; n += Operand::vector) Operand::store(wide[i] + n, w.at(i, at + n));
        const StoredWeights<Operand> widened(wide[0], pass<Operand>);
        multiply_pass<Operand, MostRows, Outputs>(p, o, at, widened, 0, next.inputs, next);
        continue;
      }
    }
    multiply_pass<Operand, MostRows, Outputs>(p, o, at, w, at, next.inputs, next);
  }
  if (whole == end && begin < end) return;
  Number padded[Outputs][Operand::vector]{};
  for (int i = 0; i < Outputs && whole < end; ++i) w.copy(i, whole, end - whole, padded[i]);
  multiply_pass<Operand, MostRows, Outputs>(p, o, whole, StoredWeights<Operand>(padded[0], Operand::vector), 0,
                                            whole < end ? Operand::vector : 0, {});
}

template <typename Operand, int MostRows, typename Weights>
void multiply_all_outputs(const PackedProduct& p, int64_t begin, int64_t end) {
  int64_t o = 0;
  for (; o + tile_outputs <= p.outputs; o += tile_outputs)
    multiply_outputs<Operand, MostRows, tile_outputs, Weights>(p, o, begin, end);
  for (; o < p.outputs; ++o) multiply_outputs<Operand, MostRows, 1, Weights>(p, o, begin, end);
}

constexpr int streamed_rows = 2, most_passes = 64;
constexpr int64_t vectors_ahead = 48, coded_vectors_ahead = 128;  // measured (bench/gemv.sh)

/// Adds up one pass: inputs [n, n + inputs) of row `i` of the weights.
template <typename Operand, int Rows, typename Weights>
__attribute__((always_inline)) inline void stream_pass(Weights w, int64_t i, int64_t n, int64_t inputs,
                                                       const typename Operand::Number* x,
                                                       typename Operand::Sums (&sums)[Rows]) {
  typename Operand::Sums own[Rows]{};
  for (const int64_t end = n + inputs; n < end; n += Operand::vector) {
    __builtin_prefetch(
        w.address(i, n) + (Weights::widened ? coded_vectors_ahead : vectors_ahead) * Weights::vector_bytes,
        /*write=*/0, /*second-level cache*/ 2);
    const typename Operand::Vector weights = w.at(i, n);
    for (int r = 0; r < Rows; ++r)
      own[r] = Operand::add_products(own[r], weights, Operand::load(x + n * Rows + r * Operand::vector));
  }
  for (int r = 0; r < Rows; ++r) sums[r] = own[r];
}

/// One or two rows, whose time is that of reading the weights: those of Outputs outputs from output `o` on, one row of
/// them after the other, as they lie in memory. The sums are those of multiply_outputs().
template <typename Operand, int Rows, int Outputs, typename Weights>
void stream_outputs(const PackedProduct& p, int64_t o) {
  using Number = typename Operand::Number;
  const int64_t whole = p.inputs / Operand::vector * Operand::vector;
  const auto* x = static_cast<const Number*>(p.x);
  const Weights w(p, o);
  typename Operand::Sums sums[Outputs][most_passes][Rows];
  int64_t passes = 0;
  for (int i = 0; i < Outputs; ++i) {
    passes = 0;
    for (int64_t n = 0; n < whole; n += pass<Operand>, ++passes)
      stream_pass<Operand, Rows>(w, i, n, whole - n < pass<Operand> ? whole - n : pass<Operand>, x, sums[i][passes]);
    if (whole == p.inputs) continue;
    Number padded[Operand::vector]{};
    w.copy(i, whole, p.inputs - whole, padded);
    for (int r = 0; r < Rows; ++r)
      sums[i][passes][r] = Operand::add_products(typename Operand::Sums{}, Operand::load(padded),
                                                 Operand::load(x + whole * Rows + r * Operand::vector));
    ++passes;
  }
  for (int r = 0; r < Rows; ++r) {
    Four<Operand> total{};
    for (int64_t n = 0; n < passes; ++n) {
      const auto of = [&](int i) { return sums[Outputs > i ? i : 0][n][r]; };
      const Four<Operand> sum = sums_of(of(0), of(1), of(2), of(3));
      total = n == 0 ? sum : sum + total;
    }
    __builtin_memcpy(static_cast<typename Operand::Result*>(p.y) + r * p.stride + o, &total,
                     sizeof(typename Operand::Result) * Outputs);
  }
}

template <typename Operand, int Rows, typename Weights>
void stream(const PackedProduct& p) {
  int64_t o = 0;
  for (; o + tile_outputs <= p.outputs; o += tile_outputs) stream_outputs<Operand, Rows, tile_outputs, Weights>(p, o);
  for (; o < p.outputs; ++o) stream_outputs<Operand, Rows, 1, Weights>(p, o);
}

/// A single tile reads the weights in the order of memory. Several have all outputs of a pass together, so that their
/// rows stay in the second-level cache.
template <typename Operand, int MostRows, typename Weights>
void multiply_weights(const PackedProduct& p) {
  if (p.rows <= streamed_rows && p.first == 0 && p.inputs < (most_passes - 1) * pass<Operand>)
    return p.rows == 1 ? stream<Operand, 1, Weights>(p) : stream<Operand, 2, Weights>(p);
  const int64_t at_once = p.tiles > 1 && p.inputs > 0 ? pass<Operand> : p.inputs;
  int64_t begin = 0;
  do {
    multiply_all_outputs<Operand, MostRows, Weights>(p, begin, p.inputs - begin < at_once ? p.inputs : begin + at_once);
    begin += at_once;
  } while (begin < p.inputs);
}

template <typename Operand, int MostRows>
void multiply(const PackedProduct& p) {
#ifdef __AVX512BF16__
  if constexpr (sizeof(typename Operand::Number) == 2) {
    if (p.codes.bits == 8 && p.codes.log2_of_group == 5) return multiply_weights<Operand, MostRows, ByteWeights<5>>(p);
    if (p.codes.bits == 8) return multiply_weights<Operand, MostRows, ByteWeights<0>>(p);
    if (p.codes.bits == 4) return multiply_weights<Operand, MostRows, NibbleWeights>(p);
  }
#endif
  multiply_weights<Operand, MostRows, StoredWeights<Operand>>(p);
}

/// Multiplies fp32 numbers with weights of every floating-point type as they are stored.
template <int MostRows>
void multiply_floats(const Gemv& g, const PackedProduct& product) {
  PackedProduct p = product;
  const int64_t bytes = g.type == Element::F32 ? 4 : 2;
  p.w = static_cast<const char*>(g.w) + g.first * g.in * bytes;
  p.w_stride = p.inputs = g.in;
  p.outputs = g.last - g.first;
  if (g.type == Element::F32)
    multiply_weights<Fp32Operands, MostRows, StoredWeights<Fp32Operands>>(p);
  else if (g.type == Element::F16)
    multiply_weights<Fp32Operands, MostRows, WidenedWeights<F16>>(p);
  else
    multiply_weights<Fp32Operands, MostRows, WidenedWeights<BF16>>(p);
}

template <typename Operand, int MostRows>
constexpr PackedProducts packed_products{.operands = Operand::type,
                                         .vector = Operand::vector,
                                         .tile_rows = MostRows,
                                         .tile_outputs = tile_outputs,
                                         .pass = pass<Operand>,
                                         .bytes = sizeof(typename Operand::Number),
                                         .pack = pack<Operand>,
                                         .multiply = multiply<Operand, MostRows>};

/// Likewise of fp32 with weights of every floating-point type.
template <int MostRows>
constexpr PackedProducts float_products{.operands = OperandType::Fp32,
                                        .vector = Fp32Operands::vector,
                                        .tile_rows = MostRows,
                                        .tile_outputs = tile_outputs,
                                        .pass = pass<Fp32Operands>,
                                        .bytes = sizeof(float),
                                        .pack = pack<Fp32Operands>,
                                        .multiply = nullptr,
                                        .multiply_any = multiply_floats<MostRows>};

}  // namespace

}  // namespace pm::ops::PM_ISA
