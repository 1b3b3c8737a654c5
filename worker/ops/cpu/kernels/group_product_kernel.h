// SPDX-License-Identifier: Apache-2.0
// The products of packed_product.h with weights as codes in groups of 32 inputs by AVX2, compiled with PM_ISA (a
// namespace) and PM_LANES 8 (vectors.h). x is rounded to integers of 16 bits with a scale for each group. A product of
// vectors adds pairs, and the exact sum of a group is scaled once, so that codes need no conversion to numbers.
#pragma once
#include "worker/ops/cpu/kernels/kernels.h"
#include "worker/ops/cpu/kernels/packed_product.h"
#include "worker/ops/cpu/kernels/rounded_rows.h"
#include "worker/ops/cpu/kernels/vectors.h"

namespace pm::ops::PM_ISA {

namespace {

constexpr int64_t group_inputs = 32, group_bytes = 2 * group_inputs;  // of x
constexpr int group_rows = 6;

/// A group as integers: inputs 0 to 15, and 16 to 31.
struct Group {
  __m256i low, high;
};

/// Codes of eight bits.
struct ByteGroups {
  static constexpr int64_t bytes = 32;
  static Group at(const uint8_t* codes) {
    return {_mm256_cvtepi8_epi16(PM_ISA::at<__m128i>(codes)), _mm256_cvtepi8_epi16(PM_ISA::at<__m128i>(codes + 16))};
  }
};

/// Codes of four bits: a byte has an input of the group's first half in its low bits, and one of the second in its high
/// bits.
struct NibbleGroups {
  static constexpr int64_t bytes = 16;
  static Group at(const uint8_t* codes) {
    const __m256i pairs = _mm256_cvtepu8_epi16(PM_ISA::at<__m128i>(codes)), zero = _mm256_set1_epi16(8);
    return {_mm256_sub_epi16(_mm256_and_si256(pairs, _mm256_set1_epi16(15)), zero),
            _mm256_sub_epi16(_mm256_srli_epi16(pairs, 4), zero)};
  }
};

/// Where the rows of a tile lie: integers [groups][rows][32], then scales [rows][groups, rounded up to vectors].
struct PackedGroups {
  int64_t groups, scale_stride;
  explicit PackedGroups(int64_t inputs)
      : groups((inputs + group_inputs - 1) / group_inputs),
        scale_stride((groups + PM_LANES - 1) / PM_LANES * PM_LANES) {}
  const char* integers(const void* x, int64_t rows, int64_t group) const {
    return static_cast<const char*>(x) + group * rows * group_bytes;
  }
  const float* scales(const void* x, int64_t rows) const {
    return reinterpret_cast<const float*>(integers(x, rows, groups));
  }
};

/// Rows rows of x times outputs [g.first, g.last), whose weights are read in the order of memory. Sums of a group are
/// exact; groups are added one by one.
template <int Rows, typename Codes>
void multiply_groups(const Gemv& g, const void* x, float* y, int64_t stride) {
  const PackedGroups packed(g.in);
  const float* scales_of_x = packed.scales(x, Rows);
  const int64_t whole = g.in / group_inputs;
  constexpr int64_t ahead = 48 * 64;  // bytes, as in gemv_kernel.h
  for (int64_t o = g.first; o < g.last; ++o) {
    const auto* w = static_cast<const uint8_t*>(g.w) + o * g.w_stride;
    const auto* scales = reinterpret_cast<const BF16*>(g.scales) + o * g.scale_stride;
    Floats sums[Rows]{};
    for (int64_t first = 0; first < packed.groups; first += PM_LANES) {
      float scaled[Rows][PM_LANES];
      const Floats own = load_some(scales + first, packed.groups - first);
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) put(scaled[r], own * load(scales_of_x + r * packed.scale_stride + first));
#pragma GCC unroll 4
      for (int64_t line = 0; line < PM_LANES * Codes::bytes; line += 64)
        __builtin_prefetch(w + first * Codes::bytes + line + ahead, /*write=*/0, /*second-level cache*/ 2);
      const auto add = [&](const uint8_t* codes, int64_t lane) {
        const auto* integers = reinterpret_cast<const __m256i*>(packed.integers(x, Rows, first + lane));
        const Group weights = Codes::at(codes);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
          const __m256i sum =
              _mm256_add_epi32(_mm256_madd_epi16(weights.low, _mm256_loadu_si256(integers + 2 * r)),
                               _mm256_madd_epi16(weights.high, _mm256_loadu_si256(integers + 2 * r + 1)));
          sums[r] += reinterpret_cast<Floats>(_mm256_cvtepi32_ps(sum)) * all(scaled[r][lane]);
        }
      };
      const int64_t count = whole - first < PM_LANES ? whole - first : PM_LANES;
      for (int64_t lane = 0; lane < count; ++lane) add(w + (first + lane) * Codes::bytes, lane);
      if (count == PM_LANES || whole == packed.groups) continue;
      uint8_t codes[Codes::bytes]{};  // of the last group, which has fewer inputs
      const int64_t left = Codes::bytes == 16 ? 16 : g.in - whole * group_inputs;
      for (int64_t k = 0; k < left; ++k) codes[k] = w[whole * Codes::bytes + k];
      add(codes, count);
    }
    for (int r = 0; r < Rows; ++r) y[r * stride + o - g.first] = sum(sums[r]);
  }
}

template <int Rows, typename Codes>
void multiply_group_rows(int64_t rows, const Gemv& g, const void* x, float* y, int64_t stride) {
  if (rows == Rows) return multiply_groups<Rows, Codes>(g, x, y, stride);
  if constexpr (Rows > 1) multiply_group_rows<Rows - 1, Codes>(rows, g, x, y, stride);
}

template <typename Codes>
void multiply_coded(const Gemv& g, const PackedProduct& p) {
  const TileRows split = tile_rows_of(p.rows, tiles_of(p.rows, group_rows));
  for (int64_t t = p.first_tile; t < p.first_tile + p.tiles; ++t) {
    const int64_t row = first_row(split, t), rows = first_row(split, t + 1) - row;
    multiply_group_rows<group_rows, Codes>(
        rows, g, static_cast<const char*>(p.x) + row * p.x_inputs * static_cast<int64_t>(sizeof(float)),
        static_cast<float*>(p.y) + row * p.stride, p.stride);
  }
}

void multiply_coded(const Gemv& g, const PackedProduct& p) {
  if (g.type == Element::I4)
    multiply_coded<NibbleGroups>(g, p);
  else
    multiply_coded<ByteGroups>(g, p);
}

void pack_groups(const float* x, int64_t rows, int64_t inputs, int64_t stride, void* to, RoundedRow*) {
  const PackedGroups packed(inputs);
  auto* integers = static_cast<__m256i*>(to);
  auto* scales = const_cast<float*>(packed.scales(to, rows));
  for (int64_t i = 0; i < rows * packed.scale_stride; ++i) scales[i] = 0;
  for (int64_t group = 0; group < packed.groups; ++group) {
    for (int64_t r = 0; r < rows; ++r) {
      const float* from = x + r * stride + group * group_inputs;
      const int64_t left = inputs - group * group_inputs, count = left < group_inputs ? left : group_inputs;
      const GroupScale scale = scale_of_group(from, count);
      const Floats inverse = all(scale.inverse);
      scales[r * packed.scale_stride + group] = scale.of;
      for (int64_t k = 0; k < group_inputs; k += 2 * PM_LANES) {
        const auto rounded = [&](int64_t first) {
          return first < count
                     ? reinterpret_cast<__m256i>(integers_of(load_some(from + first, count - first) * inverse))
                     : __m256i{};
        };
        const __m256i halves = _mm256_packs_epi32(rounded(k), rounded(k + PM_LANES));
        _mm256_storeu_si256(integers++, _mm256_permute4x64_epi64(halves, 0xd8));
      }
    }
  }
}

/// An input takes two bytes, and a group its scale.
constexpr PackedProducts group_products{.operands = OperandType::Fp32,
                                        .vector = group_inputs,
                                        .tile_rows = group_rows,
                                        .tile_outputs = 4,
                                        .pass = group_inputs,
                                        .bytes = sizeof(float),
                                        .pack = pack_groups,
                                        .multiply = nullptr,
                                        .multiply_any = multiply_coded};

}  // namespace

}  // namespace pm::ops::PM_ISA
