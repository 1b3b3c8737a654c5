// The kernel behind kernels.h's gemv, compiled once per instruction set with PM_ISA (a namespace) and PM_LANES (floats of a vector).
#include "worker/ops/cpu/kernels.h"
#include "worker/ops/cpu/vectors.h"

namespace pm::ops::PM_ISA {

namespace {

/// Adds the products of PM_LANES columns from k on. The sums are passed and kept by value: what is captured by reference GCC keeps in memory.
template <int Outputs, int Rows>
struct Sums {
  Floats of[Outputs][Rows];
};

template <int Outputs, int Rows, typename T>
__attribute__((always_inline)) inline Sums<Outputs, Rows> step(Sums<Outputs, Rows> sums, const T* w, const float* x, int64_t in) {
  Floats given[Rows];
  for (int r = 0; r < Rows; ++r) given[r] = load(x + r * in);
  for (int i = 0; i < Outputs; ++i) {
    const Floats weight = load(w + i * in);
    for (int r = 0; r < Rows; ++r) sums.of[i][r] += weight * given[r];
  }
  return sums;
}

/// Of a row's cache lines every fourth belongs to the same chain; chains are summed apart and then together. So the sums are the same for any tile, and a
/// tile of few sums works on all four at once, in the order in which the weights lie. One chain alone waits for itself, as a product is added every four cycles
/// or so; weights come faster than that.
constexpr int chains = 4;

/// Adds one cache line of weights.
template <int Outputs, int Rows, typename T>
__attribute__((always_inline)) inline Sums<Outputs, Rows> add_line(Sums<Outputs, Rows> sums, const T* w, const float* x, int64_t in, int64_t k, int64_t ahead) {
  for (int i = 0; i < Outputs; ++i) __builtin_prefetch(w + i * in + k + ahead, /*write=*/0, /*second-level cache*/ 2);
#pragma GCC unroll 8
  for (int64_t part = 0; part < static_cast<int64_t>(64 / sizeof(T)) / PM_LANES; ++part) sums = step<Outputs, Rows>(sums, w + k + part * PM_LANES, x + k + part * PM_LANES, in);
  return sums;
}

/// Outputs o .. o + Outputs - 1 of Rows rows of x: each vector of x serves all outputs, each vector of w all rows. What lies `ahead` elements
/// further is fetched meanwhile, as the processor's own prefetching stops at the end of each page.
template <int Outputs, int Rows, typename T>
inline void tile(const Gemv& g, int64_t o, int64_t ahead) {
  constexpr int64_t line = 64 / sizeof(T), round = chains * line;   // elements of a cache line, of one line for each chain
  const int64_t in = g.in, rounds = in / round * round, whole = in / PM_LANES * PM_LANES;
  const T* w = static_cast<const T*>(g.w) + o * in;
  const float* x = g.x;
  const auto finish = [&](Sums<Outputs, Rows> sums) {   // what makes no round goes to the first chain
    for (int64_t k = rounds; k < whole; k += PM_LANES) sums = step<Outputs, Rows>(sums, w + k, x + k, in);
    return sums;
  };
  Sums<Outputs, Rows> total{};
  const auto add = [&](const Sums<Outputs, Rows>& sums) {
    for (int i = 0; i < Outputs; ++i) for (int r = 0; r < Rows; ++r) total.of[i][r] += sums.of[i][r];
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
      for (int64_t rest = whole; rest < in; ++rest) sum_of_all += one(w[i * in + rest]) * x[r * in + rest];
      g.y[r * g.out + o + i] = sum_of_all;
    }
  }
}

/// One or two rows of x: the weights pass in the order in which they lie, a fixed distance ahead is best. More rows: tiles that reuse what is
/// loaded of x; each fetches the next tile. Sizes and distance are measured (bench/gemv.sh).
template <int Rows, typename T>
void rows_of(const Gemv& g) {
  constexpr int registers = PM_LANES == 16 ? 31 : 15;   // one of them holds a vector of weights, one for each row of x, the others sums
  constexpr int fitting = (registers - 1 - Rows) / Rows, outputs = Rows <= 2 || fitting < 1 ? 1 : fitting > 4 ? 4 : fitting;
  constexpr int64_t distance = 3072 / sizeof(T);
  int64_t o = g.first;
  for (; o + outputs <= g.last; o += outputs) tile<outputs, Rows, T>(g, o, outputs == 1 ? distance : o + 2 * outputs <= g.last ? outputs * g.in : 0);
  for (; o < g.last; ++o) tile<1, Rows, T>(g, o, 0);
}

template <typename T>
void typed(const Gemv& g) {
  switch (g.rows) {
    case 1: return rows_of<1, T>(g);
    case 2: return rows_of<2, T>(g);
    case 3: return rows_of<3, T>(g);
    case 4: return rows_of<4, T>(g);
    case 5: return rows_of<5, T>(g);
    case 6: return rows_of<6, T>(g);
    case 7: return rows_of<7, T>(g);
    case 8: return rows_of<8, T>(g);
    default: __builtin_trap();
  }
}

void gemv(const Gemv& g) {
  if (g.type == Element::F32) typed<float>(g);
  else if (g.type == Element::F16) typed<F16>(g);
  else typed<BF16>(g);
}

}  // namespace

}  // namespace pm::ops::PM_ISA
