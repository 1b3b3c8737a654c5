// SPDX-License-Identifier: Apache-2.0
// Rows of x as integers of eight bits, for the products of packed_product.h; compiled with PM_ISA (a namespace) and
// PM_LANES (vectors.h).
#pragma once
#include "worker/ops/cpu/kernels/packed_product.h"
#include "worker/ops/cpu/kernels/vectors.h"

namespace pm::ops::PM_ISA {

namespace {

/// Returns the largest of |x|; infinity or NaN if one of them is.
inline float largest_of(const float* x, int64_t count) {
  Floats largest{}, poison{};
  for (int64_t k = 0; k < count; k += PM_LANES) {
    const Floats some = load_some(x + k, count - k);
    const auto magnitudes = reinterpret_cast<Floats>(reinterpret_cast<Ints>(some) & 0x7fffffff);
    largest = magnitudes > largest ? magnitudes : largest;
    poison += some * 0.f;
  }
  float found = 0;
  for (int lane = 0; lane < PM_LANES; ++lane) found = largest[lane] > found ? largest[lane] : found;
  return found + sum(poison);
}

constexpr float least_rounded = 0x1p-100f;  // a row of smaller numbers is 0, for 127 / it might be infinite

/// Sets the scale of a row, and returns its inverse.
inline float round_row(const float* x, int64_t inputs, RoundedRow& rounded) {
  const float largest = largest_of(x, inputs);
  rounded = {.scale = largest < least_rounded ? 0 : largest / 127, .excess = 0};
  return largest < least_rounded ? 0 : 127 / largest;
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
