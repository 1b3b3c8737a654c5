// SPDX-License-Identifier: Apache-2.0
// The CPU kernels gemv() and widen() of kernels.h, compiled once per instruction set with PM_ISA (a namespace) and
// PM_LANES (floats of a vector).
#pragma once
#include "worker/ops/cpu/kernels/kernels.h"
#include "worker/ops/cpu/kernels/vectors.h"

namespace pm::ops::PM_ISA {

namespace {

/// Partial sums of a tile. They are passed and held by value, because GCC keeps what is captured by reference in
/// memory.
template <int Outputs, int Rows>
struct Sums {
  Floats of[Outputs][Rows];
};

/// Weights that are decoded together: vectors of columns k, k + PM_LANES, ... of one row.
template <int Count>
struct Vectors {
  Floats of[Count];
};

/// Rows of weights in a floating-point type. `line` is the number of elements in a cache line, `span` that of
/// `vectors`. `at` returns span n of row i, `one` the element of column k, `ahead` the address of the column `distance`
/// behind the beginning of span n. Spans are counted rather than columns, so that addresses in an unrolled loop are
/// constants apart.
template <typename T>
struct Stored {
  static constexpr int64_t line = 64 / sizeof(T);
  static constexpr int vectors = 1, span = PM_LANES;
  const T* w;
  int64_t in;
  Stored(const Gemv& g, int64_t o) : w(static_cast<const T*>(g.w) + o * g.in), in(g.in) {}
  Vectors<1> at(int64_t i, int64_t n) const { return {{load(w + i * in + n * span)}}; }
  float one(int64_t i, int64_t k) const { return PM_ISA::one(w[i * in + k]); }
  const void* ahead(int64_t i, int64_t n, int64_t distance) const { return w + i * in + n * span + distance; }
};

constexpr int64_t group = 32;  // of codes whose scale serves several vectors

template <int Count>
inline Vectors<Count> scaled(Vectors<Count> numbers, Floats scale) {
  for (Floats& some : numbers.of) some *= scale;
  return numbers;
}

/// Codes of a row with their scales.
template <typename Code>
struct Codes {
  const Code* w;
  const BF16* scales;
  int64_t stride, scale_stride;
  Codes(const Gemv& g, int64_t o)
      : w(static_cast<const Code*>(g.w) + o * g.w_stride),
        scales(reinterpret_cast<const BF16*>(g.scales) + o * g.scale_stride),
        stride(g.w_stride),
        scale_stride(g.scale_stride) {}
  /// The scale of group n of row i, if a group has 32 inputs.
  Floats scale_of(int64_t i, int64_t n) const { return all(scales + i * scale_stride + n); }
};

/// Eight-bit codes with a scale for each 32 inputs.
struct Bytes32 : Codes<int8_t> {
  static constexpr int64_t line = 64;
  static constexpr int vectors = group / PM_LANES, span = group;
  using Codes::Codes;
  Vectors<vectors> numbers(int64_t i, int64_t n) const {
    const int8_t* from = w + i * stride + n * span;
    Vectors<vectors> found;
    for (int v = 0; v < vectors; ++v) found.of[v] = load(from + v * PM_LANES);
    return found;
  }
  Vectors<vectors> at(int64_t i, int64_t n) const { return scaled(numbers(i, n), scale_of(i, n)); }
  float one(int64_t i, int64_t k) const {
    return PM_ISA::one(w[i * stride + k]) * PM_ISA::one(scales[i * scale_stride + k / group]);
  }
  const void* ahead(int64_t i, int64_t n, int64_t distance) const { return w + i * stride + n * span + distance; }
};

/// Eight-bit codes with a scale for each g.group inputs, which may end within a vector.
struct BytesOfAnyGroup : Codes<int8_t> {
  static constexpr int64_t line = 64;
  static constexpr int vectors = 1, span = PM_LANES;
  int64_t size;
  BytesOfAnyGroup(const Gemv& g, int64_t o) : Codes(g, o), size(g.group) {}
  float scale(int64_t i, int64_t k) const { return PM_ISA::one(scales[i * scale_stride + k / size]); }
  Vectors<1> at(int64_t i, int64_t n) const {
    const int64_t k = n * span;
    const Floats weights = load(w + i * stride + k);
    if (size % PM_LANES == 0) return {{weights * scale(i, k)}};
    Floats own;
    for (int lane = 0; lane < PM_LANES; ++lane) own[lane] = scale(i, k + lane);
    return {{weights * own}};
  }
  float one(int64_t i, int64_t k) const { return PM_ISA::one(w[i * stride + k]) * scale(i, k); }
  const void* ahead(int64_t i, int64_t n, int64_t distance) const { return w + i * stride + n * span + distance; }
};

/// Four-bit codes in groups of 32 inputs with a scale each: a byte has an input of the group's first half in its low
/// bits, and one of the second in its high bits.
struct Nibbles32 : Codes<uint8_t> {
  static constexpr int64_t line = 128;
  static constexpr int vectors = group / PM_LANES, span = group;
  using Codes::Codes;
#if PM_LANES == 8 && defined(__AVX2__)
  Vectors<vectors> numbers(int64_t i, int64_t n) const {
    Vectors<vectors> found;
    decode_group(w + i * stride + n * (span / 2), found.of);
    return found;
  }
  Vectors<vectors> at(int64_t i, int64_t n) const { return scaled(numbers(i, n), scale_of(i, n)); }
#else
  Vectors<vectors> at(int64_t i, int64_t n) const {
    const NibbleDecoder decoder(scale_of(i, n));
    const uint8_t* from = w + i * stride + n * (span / 2);
    Vectors<vectors> found;
    for (int v = 0; v < vectors / 2; ++v) {
      const Words bytes = load_words(from + v * PM_LANES);
      found.of[v] = decoder.low(bytes);
      found.of[v + vectors / 2] = decoder.high(bytes);
    }
    return found;
  }
#endif
  float one(int64_t i, int64_t k) const {
    const uint8_t byte = w[i * stride + k / group * 16 + k % 16];
    const int code = k % group >= 16 ? byte >> 4 : byte & 15;
    return static_cast<float>(code - 8) * PM_ISA::one(scales[i * scale_stride + k / group]);
  }
  const void* ahead(int64_t i, int64_t n, int64_t distance) const {
    return w + i * stride + n * (span / 2) + distance / 2;
  }
};

template <int Outputs, int Rows, typename Weights>
__attribute__((always_inline)) inline Sums<Outputs, Rows> step(Sums<Outputs, Rows> sums, Weights w, const float* x,
                                                               int64_t in, int64_t n) {
  for (int i = 0; i < Outputs; ++i) {
    if constexpr (PM_LANES == 8 && Weights::vectors == 4) {  // a sum of its own, which is scaled once
      const Vectors<4> numbers = w.numbers(i, n);
      const Floats scale = w.scale_of(i, n);
      for (int r = 0; r < Rows; ++r) {
        const float* from = x + r * in + n * Weights::span;
        const auto product = [&](int v) { return numbers.of[v] * load(from + v * PM_LANES); };
        sums.of[i][r] += ((product(0) + product(1)) + (product(2) + product(3))) * scale;
      }
      continue;
    }
    const Vectors<Weights::vectors> weights = w.at(i, n);
    for (int v = 0; v < Weights::vectors; ++v)
      for (int r = 0; r < Rows; ++r)
        sums.of[i][r] += weights.of[v] * load(x + r * in + n * Weights::span + v * PM_LANES);
  }
  return sums;
}

/// Number of independent accumulation chains: every fourth cache line of a row belongs to the same chain, and the
/// chains are added at the end. So the sums are the same for any tile, and a small tile works on all four chains at
/// once, in memory order. A single chain would be bound by the latency of the addition, about four cycles; weights
/// arrive faster than that.
constexpr int chains = 4;

/// Accumulates one cache line of weights.
template <int Outputs, int Rows, typename Weights>
__attribute__((always_inline)) inline Sums<Outputs, Rows> add_line(Sums<Outputs, Rows> sums, Weights w, const float* x,
                                                                   int64_t in, int64_t n, int64_t ahead) {
  for (int i = 0; i < Outputs; ++i) __builtin_prefetch(w.ahead(i, n, ahead), /*write=*/0, /*second-level cache*/ 2);
#pragma GCC unroll 8
  for (int64_t part = 0; part < Weights::line / Weights::span; ++part)
    sums = step<Outputs, Rows>(sums, w, x, in, n + part);
  return sums;
}

/// Computes outputs o .. o + Outputs - 1 for Rows rows of x: each vector of x serves all outputs, each vector of w all
/// rows. Prefetches `ahead` elements further, because the hardware prefetcher stops at the end of each page.
template <int Outputs, int Rows, typename Weights>
inline void tile(const Gemv& g, int64_t o, int64_t ahead) {
  constexpr int64_t line = Weights::line / Weights::span,
                    round = chains * line;  // spans of a line, of one for each chain
  const int64_t in = g.in, spans = in / Weights::span, rounds = spans / round * round;
  const Weights w(g, o);
  const float* x = g.x;
  const auto finish = [&](Sums<Outputs, Rows> sums) {  // columns beyond the last full round go to the first chain
    for (int64_t n = rounds; n < spans; ++n) sums = step<Outputs, Rows>(sums, w, x, in, n);
    return sums;
  };
  Sums<Outputs, Rows> total{};
  const auto add = [&](const Sums<Outputs, Rows>& sums) {
    for (int i = 0; i < Outputs; ++i)
      for (int r = 0; r < Rows; ++r) total.of[i][r] += sums.of[i][r];
  };
  if constexpr (Outputs * Rows <= 2) {
    Sums<Outputs, Rows> sums[chains]{};
    for (int64_t n = 0; n < rounds; n += round) {
#pragma GCC unroll 4
      for (int c = 0; c < chains; ++c) sums[c] = add_line<Outputs, Rows>(sums[c], w, x, in, n + c * line, ahead);
    }
    sums[0] = finish(sums[0]);
    for (int c = 0; c < chains; ++c) add(sums[c]);
  } else {
    for (int c = 0; c < chains; ++c) {
      Sums<Outputs, Rows> sums{};
      for (int64_t n = c * line; n < rounds; n += round) sums = add_line<Outputs, Rows>(sums, w, x, in, n, ahead);
      add(c == 0 ? finish(sums) : sums);
    }
  }
  for (int i = 0; i < Outputs; ++i) {
    for (int r = 0; r < Rows; ++r) {
      float sum_of_all = sum(total.of[i][r]);
      for (int64_t rest = spans * Weights::span; rest < in; ++rest) sum_of_all += w.one(i, rest) * x[r * in + rest];
      g.y[r * g.out + o + i] = sum_of_all;
    }
  }
}

/// Dispatches to tiles. One or two rows of x: weights are read in memory order with a fixed prefetch distance. More
/// rows: tiles reuse the loaded vectors of x, and each prefetches the next tile. Sizes and distance are measured
/// (bench/gemv.sh).
template <int Rows, typename Weights>
void rows_of(const Gemv& g) {
  constexpr int registers = PM_LANES == 16 ? 31 : 15;  // one holds weights, one each row of x, the others sums
  constexpr int fitting = (registers - 1 - Rows) / Rows, outputs = Rows <= 2 || fitting < 1 ? 1
                                                                   : fitting > 4            ? 4
                                                                                            : fitting;
  constexpr int64_t distance = 48 * Weights::line;
  int64_t o = g.first;
  for (; o + outputs <= g.last; o += outputs)
    tile<outputs, Rows, Weights>(g, o, outputs == 1 ? distance : o + 2 * outputs <= g.last ? outputs * g.in : 0);
  for (; o < g.last; ++o) tile<1, Rows, Weights>(g, o, 0);
}

template <typename Weights>
void typed(const Gemv& g) {
  switch (g.rows) {
    case 1:
      return rows_of<1, Weights>(g);
    case 2:
      return rows_of<2, Weights>(g);
    case 3:
      return rows_of<3, Weights>(g);
    case 4:
      return rows_of<4, Weights>(g);
    case 5:
      return rows_of<5, Weights>(g);
    case 6:
      return rows_of<6, Weights>(g);
    case 7:
      return rows_of<7, Weights>(g);
    case 8:
      return rows_of<8, Weights>(g);
    default:
      __builtin_trap();
  }
}

/// Calls f.operator()<Weights>() with the type of the weights.
template <typename Function>
__attribute__((always_inline)) inline void with_weights(const Gemv& g, Function f) {
  if (g.type == Element::F32)
    f.template operator()<Stored<float>>();
  else if (g.type == Element::F16)
    f.template operator()<Stored<F16>>();
  else if (g.type == Element::BF16)
    f.template operator()<Stored<BF16>>();
  else if (g.type == Element::I4)
    f.template operator()<Nibbles32>();
  else if (g.group == group)
    f.template operator()<Bytes32>();
  else
    f.template operator()<BytesOfAnyGroup>();
}

void gemv(const Gemv& g) {
  with_weights(g, [&]<typename Weights>() { typed<Weights>(g); });
}

template <typename Weights>
void widen_rows(const Gemv& g, float* out) {
  const int64_t spans = g.in / Weights::span;
  for (int64_t o = g.first; o < g.last; ++o, out += g.in) {
    const Weights w(g, o);
    for (int64_t n = 0; n < spans; ++n) {
      const Vectors<Weights::vectors> wide = w.at(0, n);
      for (int v = 0; v < Weights::vectors; ++v) put(out + n * Weights::span + v * PM_LANES, wide.of[v]);
    }
    for (int64_t k = spans * Weights::span; k < g.in; ++k) out[k] = w.one(0, k);
  }
}

void widen(const Gemv& g, float* out) {
  with_weights(g, [&]<typename Weights>() { widen_rows<Weights>(g, out); });
}

}  // namespace

}  // namespace pm::ops::PM_ISA
