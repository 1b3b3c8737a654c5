// SPDX-License-Identifier: Apache-2.0
// The products of integers of packed_product.h by AVX2, compiled with PM_ISA (a namespace) and PM_LANES 8 (vectors.h).
// Integers of eight bits are widened to 16 bits, of which a product of vectors adds pairs: exact, and twice the rate of
// fp32.
#pragma once
#include "worker/ops/cpu/kernels/outer_product_kernel.h"
#include "worker/ops/cpu/kernels/rounded_rows.h"

namespace pm::ops::PM_ISA {

namespace {

/// Operands as integers of 16 bits, two in a word.
struct IntegerWords {
  static constexpr OperandType type = OperandType::Integers;
  static constexpr int64_t inputs = 2, chain = outer_pass;  // sums are exact
  using Sums = Ints;
  static Ints add_products(Ints sums, Floats weights, Floats x) {
    return sums +
           reinterpret_cast<Ints>(_mm256_madd_epi16(reinterpret_cast<__m256i>(weights), reinterpret_cast<__m256i>(x)));
  }
};

/// Codes of eight bits as words of two integers; their scales are not read. Members are those of gemv_kernel.h, and
/// count words.
struct IntegerPairs {
  static constexpr int vectors = 1, span = PM_LANES;
  const int8_t* w;
  int64_t stride, inputs;
  IntegerPairs(const Gemv& g, int64_t o)
      : w(static_cast<const int8_t*>(g.w) + o * g.w_stride), stride(g.w_stride), inputs(g.in) {}
  const int8_t* address(int64_t i, int64_t n) const { return w + i * stride + n * 2 * span; }
  Floats whole(int64_t i, int64_t n) const {
    return reinterpret_cast<Floats>(_mm256_cvtepi8_epi16(PM_ISA::at<__m128i>(address(i, n))));
  }
  Vectors<1> at(int64_t i, int64_t n) const {
    if (2 * (n + 1) * span <= inputs) return {{whole(i, n)}};
    float words[PM_LANES];  // the last has one input, behind which the matrix may end
    for (int k = 0; k < PM_LANES; ++k) words[k] = one(i, n * span + k);
    return {{load(words)}};
  }
  float one(int64_t i, int64_t k) const {
    const int8_t* pair = w + i * stride + 2 * k;
    const int16_t integers[2] = {pair[0], 2 * k + 1 < inputs ? pair[1] : int8_t{0}};
    return PM_ISA::at<float>(integers);
  }
};

constexpr int most_streamed_rows = 2;  // up to so many the time is that of reading the weights

/// Rows rows of x, packed as [vectors][Rows], by outputs [g.first, g.last).
template <int Rows>
void stream_integers(const Gemv& g, const PackedProduct& p) {
  const int64_t words = (g.in + 1) / 2, spans = g.in / (2 * IntegerPairs::span);
  constexpr int64_t line = 4, ahead = 48 * 64;  // spans of a cache line; bytes, as in gemv_kernel.h
  for (int64_t o = g.first; o < g.last; ++o) {
    const IntegerPairs w(g, o);
    const auto* x = static_cast<const float*>(p.x);
    Ints sums[Rows]{};
    const auto add = [&](Floats weights, int64_t n) {
#pragma GCC unroll 2
      for (int r = 0; r < Rows; ++r)
        sums[r] = IntegerWords::add_products(sums[r], weights, load(x + (n * Rows + r) * PM_LANES));
    };
    int64_t n = 0;
    for (; n + line <= spans; n += line) {
      __builtin_prefetch(w.address(0, n) + ahead, /*write=*/0, /*second-level cache*/ 2);
#pragma GCC unroll 4
      for (int64_t i = 0; i < line; ++i) add(w.whole(0, n + i), n + i);
    }
    for (; n < spans; ++n) add(w.whole(0, n), n);
    if (spans * PM_LANES < words) {
      float rest[PM_LANES]{};
      for (int64_t k = spans * PM_LANES; k < words; ++k) rest[k - spans * PM_LANES] = w.one(0, k);
      add(load(rest), spans);
    }
    for (int r = 0; r < Rows; ++r) {
      int32_t total = 0;
      for (int lane = 0; lane < PM_LANES; ++lane) total += sums[r][lane];
      __builtin_memcpy(static_cast<float*>(p.y) + r * p.stride + o - g.first, &total, sizeof total);
    }
  }
}

void multiply_integers(const Gemv& g, const PackedProduct& p) {
  if (p.rows == 1) return stream_integers<1>(g, p);
  if (p.rows == 2) return stream_integers<2>(g, p);
  multiply_outer<IntegerWords, IntegerPairs>(g, p);
}

/// Tiles of up to most_streamed_rows rows, of which there is one, as [vectors][rows][16 integers], others as
/// [words][rows].
void pack_integers(const float* x, int64_t rows, int64_t inputs, int64_t stride, void* to, RoundedRow* rounded) {
  constexpr int64_t vector = 2 * PM_LANES;
  for (int64_t r = 0; r < rows; ++r, x += stride) {
    const Floats inverse = all(round_row(x, inputs, rounded[r]));
    for (int64_t k = 0; k < inputs; k += vector) {
      int16_t integers[vector]{};
      for (int64_t part = 0; part < vector && k + part < inputs; part += PM_LANES) {
        const Ints some = integers_of(load_some(x + k + part, inputs - k - part) * inverse);
        for (int i = 0; i < PM_LANES; ++i) integers[part + i] = static_cast<int16_t>(some[i]);
      }
      char* words = static_cast<char*>(to) + 2 * k * rows;
      if (rows <= most_streamed_rows) {
        __builtin_memcpy(words + r * sizeof integers, integers, sizeof integers);
        continue;
      }
      for (int i = 0; i < PM_LANES; ++i) __builtin_memcpy(words + 4 * (i * rows + r), integers + 2 * i, 4);
    }
  }
}

constexpr PackedProducts integer_products{.operands = OperandType::Integers,
                                          .vector = 2 * PM_LANES,
                                          .tile_rows = outer_rows,
                                          .tile_outputs = outer_outputs,
                                          .pass = IntegerWords::inputs * outer_pass,
                                          .bytes = sizeof(int16_t),
                                          .pack = pack_integers,
                                          .multiply = nullptr,
                                          .multiply_any = multiply_integers};

}  // namespace

}  // namespace pm::ops::PM_ISA
