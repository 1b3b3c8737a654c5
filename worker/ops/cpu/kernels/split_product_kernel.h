// SPDX-License-Identifier: Apache-2.0
// The products of packed_product.h with weights as codes in groups of 32 inputs by AVX-512 VNNI, compiled with PM_ISA
// (a namespace) and PM_LANES 16 (vectors.h). x is rounded to integers of 16 bits with a scale for each group, which are
// split into two bytes: x = 256 high + low. A product of vectors multiplies 64 codes with 64 bytes and adds fours, so
// that codes need no conversion, and the exact sum of a group is scaled once.
#pragma once
#include "worker/ops/cpu/kernels/kernels.h"
#include "worker/ops/cpu/kernels/packed_product.h"
#include "worker/ops/cpu/kernels/rounded_rows.h"
#include "worker/ops/cpu/kernels/vectors.h"

namespace pm::ops::PM_ISA {

namespace {

constexpr int64_t group_inputs = 32, vector_bytes = 64;
constexpr int group_rows = 6;

/// Vectors of codes without sign, `offset` added, of `together` groups that are multiplied together. Input k of them is
/// in byte place(k) of these vectors.
template <int Count>
struct CodeVectors {
  __m512i of[Count];
};

/// Codes of eight bits.
struct ByteCodes {
  static constexpr int64_t bytes = 32, together = 2, vectors = 1, offset = 128;
  static CodeVectors<vectors> at(const uint8_t* codes) {
    return {{_mm512_xor_si512(PM_ISA::at<__m512i>(codes), _mm512_set1_epi8(-128))}};
  }
  static int64_t place(int64_t k) { return k; }
};

/// Codes of four bits: a byte has an input of the group's first half in its low bits, and one of the second in its high
/// bits.
struct NibbleCodes {
  static constexpr int64_t bytes = 16, together = 4, vectors = 2, offset = 8;
  static CodeVectors<vectors> at(const uint8_t* codes) {
    const __m512i pairs = PM_ISA::at<__m512i>(codes), low_bits = _mm512_set1_epi8(15);
    return {{_mm512_and_si512(pairs, low_bits),
             _mm512_and_si512(_mm512_maskz_srli_epi16(~__mmask32{}, pairs, 4), low_bits)}};
  }
  static int64_t place(int64_t k) { return k % 32 / 16 * vector_bytes + k / 32 * 16 + k % 16; }
};

/// Where the rows of a tile lie: for each step, which is the groups that are multiplied together, and each row the sums
/// with which it begins, -offset x, and for each vector of codes the high bytes and the low ones; then the scales
/// [rows] [groups, rounded up to vectors].
template <typename Codes>
struct PackedSteps {
  static constexpr int64_t inputs = Codes::together * group_inputs, bytes = (1 + 2 * Codes::vectors) * vector_bytes;
  int64_t groups, steps, scale_stride;
  explicit PackedSteps(int64_t in)
      : groups((in + group_inputs - 1) / group_inputs),
        steps((in + inputs - 1) / inputs),
        scale_stride((groups + PM_LANES - 1) / PM_LANES * PM_LANES) {}
  const float* scales(const void* x, int64_t rows) const {
    return reinterpret_cast<const float*>(static_cast<const char*>(x) + steps * rows * bytes);
  }
};

/// Returns the scales of the groups from `lane` on, each in the lanes of its sums.
template <int64_t Together>
inline Floats scales_at(Floats scales, int64_t lane) {
  const Ints which =
      (Ints{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} * static_cast<int32_t>(Together)) / PM_LANES;
  return reinterpret_cast<Floats>(_mm512_maskz_permutexvar_ps(
      0xffff, reinterpret_cast<__m512i>(which + static_cast<int32_t>(lane)), reinterpret_cast<__m512>(scales)));
}

/// Returns sums of products with numbers from those with their high and their low bytes.
inline Ints joined(__m512i high, __m512i low) {
  return reinterpret_cast<Ints>(high) * 256 + reinterpret_cast<Ints>(low);
}

/// Returns a row's sums with a step added, of which `x` are the packed bytes.
template <typename Codes>
__attribute__((always_inline)) inline Floats added(Floats sums, const CodeVectors<Codes::vectors>& codes, const char* x,
                                                   Floats scales) {
  __m512i low = at<__m512i>(x), high = _mm512_setzero_si512();
  for (int v = 0; v < Codes::vectors; ++v) {
    high = _mm512_dpbusd_epi32(high, codes.of[v], at<__m512i>(x + (1 + 2 * v) * vector_bytes));
    low = _mm512_dpbusd_epi32(low, codes.of[v], at<__m512i>(x + (2 + 2 * v) * vector_bytes));
  }
  return sums + __builtin_convertvector(joined(high, low), Floats) * scales;
}

/// Numbers of rows, 0 to N - 1. Rows are expanded, because loops over them take up to a tenth longer with GCC 12.
template <int... Row>
struct Rows {};
template <int N, int... Row>
struct FirstRows : FirstRows<N - 1, N - 1, Row...> {};
template <int... Row>
struct FirstRows<0, Row...> {
  using Of = Rows<Row...>;
};

/// A pass over some vectors of groups: the rows' part of x stays in the first-level cache for some outputs.
constexpr int64_t pass_bytes = 20480, pass_outputs = 16;

/// Some rows of x times outputs [g.first, g.last). Sums of a group are exact; steps are added one by one.
template <typename Codes, int... Row>
void multiply_steps(Rows<Row...>, const Gemv& g, const void* x, float* y, int64_t stride) {
  using Packed = PackedSteps<Codes>;
  constexpr int64_t together = Codes::together, bytes = together * Codes::bytes, lanes_bytes = PM_LANES * Codes::bytes,
                    rows = sizeof...(Row), row_pass = pass_bytes / (PM_LANES / together * Packed::bytes),
                    pass = row_pass / rows > 1 ? row_pass / rows : 1;
  constexpr int64_t ahead = 128 * 64;  // bytes; measured (bench/gemv.sh)
  const Packed packed(g.in);
  const int64_t row_bytes = Codes::bytes == 16 ? packed.groups * Codes::bytes : g.in, whole = row_bytes / lanes_bytes,
                rest = row_bytes % lanes_bytes, vectors = whole + (rest > 0 ? 1 : 0);
  uint8_t last[lanes_bytes]{};  // codes of the last groups, which are no whole vector of them
  Floats partial[pass_outputs][rows];
  for (int64_t first = g.first; first < g.last; first += pass_outputs) {
    const int64_t end = first + pass_outputs < g.last ? first + pass_outputs : g.last;
    for (int64_t begin = 0; begin < vectors; begin += pass) {
      const int64_t behind = begin + pass < vectors ? begin + pass : vectors;
      for (int64_t o = first; o < end; ++o) {
        const auto* w = static_cast<const uint8_t*>(g.w) + o * g.w_stride;
        const auto* scales = reinterpret_cast<const BF16*>(g.scales) + o * g.scale_stride;
        for (int64_t k = 0; k < (behind > whole ? rest : 0); ++k) last[k] = w[whole * lanes_bytes + k];
        const Floats last_scales = load_some(scales + whole * PM_LANES, packed.groups - whole * PM_LANES);
        const char* from = static_cast<const char*>(x) + begin * (PM_LANES / together) * rows * Packed::bytes;
        const float* scales_of_x = packed.scales(x, rows) + begin * PM_LANES;
        Floats sums[rows]{};
        if (begin > 0) ((sums[Row] = partial[o - first][Row]), ...);
        for (int64_t i = begin; i < behind; ++i, scales_of_x += PM_LANES) {
          const uint8_t* codes = i < whole ? w + i * lanes_bytes : last;
          const Floats own = i < whole ? load(scales + i * PM_LANES) : last_scales;
          const Floats scaled[rows] = {own * load(scales_of_x + Row * packed.scale_stride)...};
          const auto add = [&](int64_t lane) {
            const CodeVectors<Codes::vectors> some = Codes::at(codes);
            ((sums[Row] =
                  added<Codes>(sums[Row], some, from + Row * Packed::bytes, scales_at<together>(scaled[Row], lane))),
             ...);
            codes += bytes;
            from += rows * Packed::bytes;
          };
          if (i < whole) {
#pragma GCC unroll 8
            for (int64_t line = 0; line < lanes_bytes; line += 64)
              __builtin_prefetch(codes + line + ahead, /*write=*/0, /*second-level cache*/ 2);
            __builtin_prefetch(scales + i * PM_LANES + ahead / Codes::bytes, 0, 2);
#pragma GCC unroll 8
            for (int64_t lane = 0; lane < PM_LANES; lane += together) add(lane);
          } else {
#pragma GCC unroll 1
            for (int64_t left = rest, lane = 0; left > 0; left -= bytes, lane += together) add(lane);
          }
        }
        ((partial[o - first][Row] = sums[Row]), ...);
      }
    }
    for (int64_t o = first; o < end; ++o) ((y[Row * stride + o - g.first] = sum(partial[o - first][Row])), ...);
  }
}

template <typename Codes, int Most>
void multiply_step_rows(int64_t rows, const Gemv& g, const void* x, float* y, int64_t stride) {
  if (rows == Most) return multiply_steps<Codes>(typename FirstRows<Most>::Of{}, g, x, y, stride);
  if constexpr (Most > 1) multiply_step_rows<Codes, Most - 1>(rows, g, x, y, stride);
}

template <typename Codes>
void multiply_split(const Gemv& g, const PackedProduct& p) {
  const TileRows split = tile_rows_of(p.rows, tiles_of(p.rows, group_rows));
  for (int64_t t = p.first_tile; t < p.first_tile + p.tiles; ++t) {
    const int64_t row = first_row(split, t), rows = first_row(split, t + 1) - row;
    multiply_step_rows<Codes, group_rows>(
        rows, g, static_cast<const char*>(p.x) + row * p.x_inputs * static_cast<int64_t>(sizeof(float)),
        static_cast<float*>(p.y) + row * p.stride, p.stride);
  }
}

/// Puts up to 16 inputs times `inverse` as integers to 16 high bytes and 16 low ones, which have signs.
inline void put_halves(const float* from, int64_t count, float inverse, char* high, char* low) {
  const Ints integers = integers_of(load_some(from, count) * all(inverse)), rest = (integers + 128) >> 8;
  const __m128i high_bytes = _mm512_maskz_cvtepi32_epi8(0xffff, reinterpret_cast<__m512i>(rest)),
                low_bytes = _mm512_maskz_cvtepi32_epi8(0xffff, reinterpret_cast<__m512i>(integers));
  __builtin_memcpy(high, &high_bytes, sizeof high_bytes);
  __builtin_memcpy(low, &low_bytes, sizeof low_bytes);
}

template <typename Codes>
void pack_split(const float* x, int64_t rows, int64_t inputs, int64_t stride, void* to, RoundedRow*) {
  using Packed = PackedSteps<Codes>;
  const Packed packed(inputs);
  auto* scales = const_cast<float*>(packed.scales(to, rows));
  for (int64_t i = 0; i < rows * packed.scale_stride; ++i) scales[i] = 0;
  auto* next = static_cast<char*>(to);
  for (int64_t step = 0; step < packed.steps; ++step) {
    for (int64_t r = 0; r < rows; ++r, next += Packed::bytes) {
      if ((step + 1) * Packed::inputs > inputs)
        for (int64_t i = vector_bytes; i < Packed::bytes; ++i) next[i] = 0;
      for (int64_t k = 0; k < Packed::inputs; k += group_inputs) {
        const int64_t first = step * Packed::inputs + k, left = inputs - first,
                      count = left < group_inputs ? left : group_inputs;
        if (count <= 0) break;
        const float* from = x + r * stride + first;
        const GroupScale scale = scale_of_group(from, count);
        scales[r * packed.scale_stride + first / group_inputs] = scale.of;
        for (int64_t i = 0; i < count; i += PM_LANES) {
          const int64_t place = Codes::place(k + i);
          char* high = next + (1 + 2 * (place / vector_bytes)) * vector_bytes + place % vector_bytes;
          put_halves(from + i, count - i, scale.inverse, high, high + vector_bytes);
        }
      }
      const __m512i offset = _mm512_set1_epi8(static_cast<char>(Codes::offset));
      __m512i low = _mm512_setzero_si512(), high = low;
      for (int v = 0; v < Codes::vectors; ++v) {
        high = _mm512_dpbusd_epi32(high, offset, at<__m512i>(next + (1 + 2 * v) * vector_bytes));
        low = _mm512_dpbusd_epi32(low, offset, at<__m512i>(next + (2 + 2 * v) * vector_bytes));
      }
      const Ints begin = -joined(high, low);
      __builtin_memcpy(next, &begin, sizeof begin);
    }
  }
}

/// An input takes two bytes and its share of the sums with which a step begins, and a group its scale.
template <typename Codes>
constexpr PackedProducts split_products{.operands = OperandType::Fp32,
                                        .vector = PackedSteps<Codes>::inputs,
                                        .tile_rows = group_rows,
                                        .tile_outputs = 4,
                                        .pass = PackedSteps<Codes>::inputs,
                                        .bytes = sizeof(float),
                                        .pack = pack_split<Codes>,
                                        .multiply = nullptr,
                                        .multiply_any = multiply_split<Codes>};

}  // namespace

}  // namespace pm::ops::PM_ISA
