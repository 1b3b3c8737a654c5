// SPDX-License-Identifier: Apache-2.0
// Rows of x as integers of eight bits, and groups of them of sixteen, for the products of packed_product.h; compiled
// with PM_ISA (a namespace) and PM_LANES (vectors.h).
#pragma once
#include "worker/ops/cpu/kernels/packed_product.h"
#include "worker/ops/cpu/kernels/vectors.h"

namespace pm::ops::PM_ISA {

namespace {

/// Returns the largest of the lanes.
inline float largest_lane(Floats value) {
#if PM_LANES == 16
  const auto a = __builtin_shufflevector(value, value, 0, 1, 2, 3, 4, 5, 6, 7),
             b = __builtin_shufflevector(value, value, 8, 9, 10, 11, 12, 13, 14, 15), eight = a > b ? a : b;
#else
  const Floats eight = value;
#endif
  const auto c = __builtin_shufflevector(eight, eight, 0, 1, 2, 3),
             d = __builtin_shufflevector(eight, eight, 4, 5, 6, 7), four = c > d ? c : d,
             e = __builtin_shufflevector(four, four, 2, 3, 0, 1), two = four > e ? four : e;
  return two[0] > two[1] ? two[0] : two[1];
}

/// Returns the largest of |x|; infinity or NaN if one of them is.
inline float largest_of(const float* x, int64_t count) {
  Floats largest{}, poison{};
  for (int64_t k = 0; k < count; k += PM_LANES) {
    const Floats some = load_some(x + k, count - k);
    const auto magnitudes = reinterpret_cast<Floats>(reinterpret_cast<Ints>(some) & 0x7fffffff);
    largest = magnitudes > largest ? magnitudes : largest;
    poison += some * 0.f;
  }
  return largest_lane(largest) + sum(poison);
}

constexpr float least_rounded = 0x1p-100f;  // a row of smaller numbers is 0, for 127 / it might be infinite

/// Sets the scale of a row, and returns its inverse.
inline float round_row(const float* x, int64_t inputs, RoundedRow& rounded) {
  const float largest = largest_of(x, inputs);
  rounded = {.scale = largest < least_rounded ? 0 : largest / 127, .excess = 0};
  return largest < least_rounded ? 0 : 127 / largest;
}

/// Of the integers of a group, which are two bytes with signs: 127 * 256 + 127.
constexpr float largest_integer = 32639;

struct GroupScale {
  float of, inverse;
};

/// Returns the scale of a group whose largest number becomes largest_integer.
inline GroupScale scale_of_group(const float* x, int64_t count) {
  const float largest = largest_of(x, count);
  return largest < least_rounded ? GroupScale{} : GroupScale{largest / largest_integer, largest_integer / largest};
}

/// Rounds to nearest, ties to even.
inline Ints integers_of(Floats x) {
#if PM_LANES == 16
  return reinterpret_cast<Ints>(_mm512_maskz_cvtps_epi32(0xffff, reinterpret_cast<__m512>(x)));
#else
  return reinterpret_cast<Ints>(_mm256_cvtps_epi32(reinterpret_cast<__m256>(x)));
#endif
}

}  // namespace

}  // namespace pm::ops::PM_ISA
