// SPDX-License-Identifier: Apache-2.0
// The types of operands of packed_product_kernel.h, and how rows of x become them; compiled with PM_ISA (a namespace)
// and PM_LANES (vectors.h).
#pragma once
#include "worker/ops/cpu/kernels/packed_product.h"
#include "worker/ops/cpu/kernels/rounded_rows.h"
#include "worker/ops/cpu/kernels/vectors.h"

namespace pm::ops::PM_ISA {

namespace {

/// Operands in fp32.
struct Fp32Operands {
  using Number = float;
  static constexpr OperandType type = OperandType::Fp32;
  using Vector = Floats;
  using Sums = Floats;
  using Result = float;
  static constexpr int64_t vector = PM_LANES;
  static Vector load(const Number* from) { return PM_ISA::load(from); }
  static Floats add_products(Floats sums, Vector a, Vector b) { return sums + a * b; }
  static void store(Number* to, Vector value) { PM_ISA::put(to, value); }
  static void put(Number* to, const float* from) { store(to, load(from)); }
};

#ifdef __AVX512BF16__
/// Operands in bf16. x is rounded to nearest, ties to even.
struct Bf16Operands {
  using Number = uint16_t;
  static constexpr OperandType type = OperandType::Bf16;
  using Vector = __m512bh;
  using Sums = Floats;
  using Result = float;
  static constexpr int64_t vector = 32;
  static Vector load(const Number* from) { return at<Vector>(from); }
  static Floats add_products(Floats sums, Vector a, Vector b) {
    return reinterpret_cast<Floats>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(sums), a, b));
  }
  static void store(Number* to, Vector value) { __builtin_memcpy(to, &value, sizeof value); }
  static void put(Number* to, const float* from) {
    store(to, _mm512_cvtne2ps_pbh(at<__m512>(from + 16), at<__m512>(from)));
  }
};
#endif

#ifdef __AVX512VNNI__
/// Operands as integers of eight bits. Products take those of one side without sign, so that 128 is added to weights.
struct Int8Operands {
  using Number = int8_t;
  static constexpr OperandType type = OperandType::Integers;
  using Vector = __m512i;
  using Sums = Ints;
  using Result = int32_t;
  static constexpr int64_t vector = 64;
  static Vector load(const Number* from) { return at<Vector>(from); }
  static Ints add_products(Ints sums, Vector weights, Vector x) {
    const Vector without_sign = _mm512_xor_si512(weights, _mm512_set1_epi8(-128));
    return reinterpret_cast<Ints>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sums), without_sign, x));
  }
  static void store(Number* to, Vector value) { __builtin_memcpy(to, &value, sizeof value); }
  /// Puts 16 integers, which are whole numbers.
  static void put(Number* to, Ints integers) {
    const __m128i bytes = _mm512_maskz_cvtepi32_epi8(0xffff, reinterpret_cast<__m512i>(integers));
    __builtin_memcpy(to, &bytes, sizeof bytes);
  }
};
#endif

/// Inputs whose weights and packed rows, of a tile each, stay in the first-level cache: ten rows of 2 KiB.
template <typename Operand>
constexpr int64_t pass = 2048 / static_cast<int64_t>(sizeof(typename Operand::Number));

template <typename Operand>
void pack(const float* x, int64_t rows, int64_t inputs, int64_t stride, void* to, RoundedRow*) {
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

#ifdef __AVX512VNNI__
template <>
void pack<Int8Operands>(const float* x, int64_t rows, int64_t inputs, int64_t stride, void* to, RoundedRow* rounded) {
  constexpr int most_rows = 16;
  Floats inverse[most_rows];
  Words sums[most_rows]{};
  for (int64_t r = 0; r < rows; ++r) inverse[r] = all(round_row(x + r * stride, inputs, rounded[r]));
  auto* next = static_cast<int8_t*>(to);
  const auto put = [&](int64_t r, const float* from) {
    for (int v = 0; v < Int8Operands::vector; v += PM_LANES) {
      const Ints integers = integers_of(load(from + v) * inverse[r]);
      Int8Operands::put(next + v, integers);
      sums[r] += reinterpret_cast<Words>(integers);
    }
    next += Int8Operands::vector;
  };
  int64_t k = 0;
  for (; k + Int8Operands::vector <= inputs; k += Int8Operands::vector)
    for (int64_t r = 0; r < rows; ++r) put(r, x + r * stride + k);
  for (int64_t r = 0; k < inputs && r < rows; ++r) {
    float some[Int8Operands::vector]{};
    for (int64_t i = 0; k + i < inputs; ++i) some[i] = x[r * stride + k + i];
    put(r, some);
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int lane = 0; lane < PM_LANES; ++lane) rounded[r].excess += 128 * sums[r][lane];
  }
}
#endif

}  // namespace

}  // namespace pm::ops::PM_ISA
