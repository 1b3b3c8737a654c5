// SPDX-License-Identifier: Apache-2.0
// The CPU kernel gemv() of kernels.h, compiled once per instruction set with PM_ISA (a namespace) and PM_LANES (floats
// of a vector).
#include "worker/ops/cpu/kernels.h"
#include "worker/ops/cpu/vectors.h"

namespace pm::ops::PM_ISA {

namespace {

/// Partial sums of a tile. They are passed and held by value, because GCC keeps what is captured by reference in
/// memory.
template <int Outputs, int Rows>
struct Sums {
  Floats of[Outputs][Rows];
};

/// Rows of weights in a floating-point type. `at` returns the vector of row i that begins at column k, `one` a single
/// element, `ahead` the address of column k.
template <typename T>
struct Stored {
  static constexpr int64_t bytes = sizeof(T);
  const T* w;
  int64_t in;
  Stored(const Gemv& g, int64_t o) : w(static_cast<const T*>(g.w) + o * g.in), in(g.in) {}
  Floats at(int64_t i, int64_t k) const { return load(w + i * in + k); }
  float one(int64_t i, int64_t k) const { return PM_ISA::one(w[i * in + k]); }
  const void* ahead(int64_t i, int64_t k) const { return w + i * in + k; }
};

/// INT8 weights with a scale for each Group inputs; 0: for each g.group inputs, which may end within a vector.
template <int Group>
struct Scaled {
  static constexpr int64_t bytes = 1;
  const int8_t* w;
  const BF16* scales;
  int64_t stride, scale_stride, group;
  Scaled(const Gemv& g, int64_t o)
      : w(static_cast<const int8_t*>(g.w) + o * g.w_stride),
        scales(reinterpret_cast<const BF16*>(g.scales) + o * g.scale_stride),
        stride(g.w_stride),
        scale_stride(g.scale_stride),
        group(Group ? Group : g.group) {}
  float scale(int64_t i, int64_t k) const {
    return PM_ISA::one(scales[i * scale_stride + k / (Group ? Group : group)]);
  }
  Floats at(int64_t i, int64_t k) const {
    const Floats weights = load(w + i * stride + k);
    if (Group != 0 || group % PM_LANES == 0) return weights * scale(i, k);
    Floats own;
    for (int lane = 0; lane < PM_LANES; ++lane) own[lane] = scale(i, k + lane);
    return weights * own;
  }
  float one(int64_t i, int64_t k) const { return PM_ISA::one(w[i * stride + k]) * scale(i, k); }
  const void* ahead(int64_t i, int64_t k) const { return w + i * stride + k; }
};

template <int Outputs, int Rows, typename Weights>
__attribute__((always_inline)) inline Sums<Outputs, Rows> step(Sums<Outputs, Rows> sums, Weights w, const float* x,
                                                               int64_t in, int64_t k) {
  Floats given[Rows];
  for (int r = 0; r < Rows; ++r) given[r] = load(x + r * in + k);
  for (int i = 0; i < Outputs; ++i) {
    const Floats weight = w.at(i, k);
    for (int r = 0; r < Rows; ++r) sums.of[i][r] += weight * given[r];
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
                                                                   int64_t in, int64_t k, int64_t ahead) {
  for (int i = 0; i < Outputs; ++i) __builtin_prefetch(w.ahead(i, k + ahead), /*write=*/0, /*second-level cache*/ 2);
#pragma GCC unroll 8
  for (int64_t part = 0; part < 64 / Weights::bytes / PM_LANES; ++part)
    sums = step<Outputs, Rows>(sums, w, x, in, k + part * PM_LANES);
  return sums;
}

/// Computes outputs o .. o + Outputs - 1 for Rows rows of x: each vector of x serves all outputs, each vector of w all
/// rows. Prefetches `ahead` elements further, because the hardware prefetcher stops at the end of each page.
template <int Outputs, int Rows, typename Weights>
inline void tile(const Gemv& g, int64_t o, int64_t ahead) {
  constexpr int64_t line = 64 / Weights::bytes,
                    round = chains * line;  // elements of a cache line, of one line for each chain
  const int64_t in = g.in, rounds = in / round * round, whole = in / PM_LANES * PM_LANES;
  const Weights w(g, o);
  const float* x = g.x;
  const auto finish = [&](Sums<Outputs, Rows> sums) {  // columns beyond the last full round go to the first chain
    for (int64_t k = rounds; k < whole; k += PM_LANES) sums = step<Outputs, Rows>(sums, w, x, in, k);
    return sums;
  };
  Sums<Outputs, Rows> total{};
  const auto add = [&](const Sums<Outputs, Rows>& sums) {
    for (int i = 0; i < Outputs; ++i)
      for (int r = 0; r < Rows; ++r) total.of[i][r] += sums.of[i][r];
  };
  if constexpr (Outputs * Rows <= 2) {
    Sums<Outputs, Rows> sums[chains]{};
    for (int64_t k = 0; k < rounds; k += round) {
#pragma GCC unroll 4
      for (int c = 0; c < chains; ++c) sums[c] = add_line<Outputs, Rows>(sums[c], w, x, in, k + c * line, ahead);
    }
    sums[0] = finish(sums[0]);
    for (int c = 0; c < chains; ++c) add(sums[c]);
  } else {
    for (int c = 0; c < chains; ++c) {
      Sums<Outputs, Rows> sums{};
      for (int64_t k = c * line; k < rounds; k += round) sums = add_line<Outputs, Rows>(sums, w, x, in, k, ahead);
      add(c == 0 ? finish(sums) : sums);
    }
  }
  for (int i = 0; i < Outputs; ++i) {
    for (int r = 0; r < Rows; ++r) {
      float sum_of_all = sum(total.of[i][r]);
      for (int64_t rest = whole; rest < in; ++rest) sum_of_all += w.one(i, rest) * x[r * in + rest];
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
  constexpr int64_t distance = 3072 / Weights::bytes;
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

void gemv(const Gemv& g) {
  if (g.type == Element::F32)
    typed<Stored<float>>(g);
  else if (g.type == Element::F16)
    typed<Stored<F16>>(g);
  else if (g.type == Element::BF16)
    typed<Stored<BF16>>(g);
  else if (g.group == 32)
    typed<Scaled<32>>(g);
  else
    typed<Scaled<0>>(g);
}

}  // namespace

}  // namespace pm::ops::PM_ISA
