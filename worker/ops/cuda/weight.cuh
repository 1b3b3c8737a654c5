// SPDX-License-Identifier: Apache-2.0
// Arithmetic of sampling in fp32 and integers that keeps the meaning of the host's fp64: quotients by a temperature,
// and softmax weights as whole numbers, whose sums do not depend on their order.
#pragma once
#include "worker/ops/cuda/device.cuh"

namespace pm::ops::cuda {

/// A sum of weights. A weight of 1 is 2^44, so that 2^19 weights fit.
using Sum = unsigned long long;
inline constexpr int weight_bits = 44, power_bits = 31;
inline constexpr int power_steps = 256;   ///< powers of two in a table, 1 down to 2^(-255/256)
inline constexpr float farthest = 31.5f;  ///< weights of scores farther below the best are less than 2^-45: 0

/// A divisor: the sum of three fp32 numbers is its inverse.
struct Divisor {
  float inverse[3] = {1, 0, 0};

  Divisor() = default;
  __device__ __forceinline__ explicit Divisor(double value) {
    const double all = 1 / value, error = fma(-all, value, 1.0) / value;
    inverse[0] = static_cast<float>(all);
    const double rest = all - static_cast<double>(inverse[0]);
    inverse[1] = static_cast<float>(rest);
    inverse[2] = static_cast<float>(rest - static_cast<double>(inverse[1]) + error);
  }
  /// Returns x divided in fp64 and rounded to fp32. A product and its error are exact together (Dekker 1971); __fmul_rn
  /// is never contracted to a fused operation. Temperatures like 0.6 have many quotients that lie almost in the middle
  /// of two numbers, where the smallest terms decide, or fp64 has the middle itself and rounds to even.
  __device__ __forceinline__ float quotient(float x) const {
    if (inverse[0] == 1 && inverse[1] == 0) return x;
    const float product = __fmul_rn(x, inverse[0]), error = fmaf(x, inverse[0], -product);
    const float terms = fmaf(x, inverse[1], error), nearest = product + terms;
    if (fabsf(product) == INFINITY) return product;
    const float left = (product - nearest) + terms, other = fmaf(2.f, left, nearest);
    if (left == 0 || other - nearest != left + left) return nearest;
    const float second = __fmul_rn(x, inverse[1]);
    const float beyond =
        fmaf(x, inverse[2], ((error - terms) + second) + fmaf(x, inverse[1], -second));  // what `terms` lacks
    const bool is_nearer = (left > 0) == (beyond > 0) && fabsf(beyond) > fabsf(left) * 0x1p-29f;
    return is_nearer ? other : nearest;
  }
};

/// Fills the table of powers: entry i is 2^(-i / 256), times 2^31. All threads of the block call it.
__device__ __forceinline__ void make_powers(unsigned* powers) {
  for (int i = static_cast<int>(threadIdx.x); i < power_steps; i += static_cast<int>(blockDim.x))
    powers[i] = static_cast<unsigned>(exp2(-i / static_cast<double>(power_steps)) * (1u << power_bits) + 0.5);
}

/// Returns exp(score - best), times 2^44 and rounded to a whole number; 0 for -inf and NaN. score is at most best. The
/// relative error is below 2^-30: the difference is exact as two numbers (Knuth's two-sum); n steps of ln 2 / 256 are
/// taken off it in two parts (Cody and Waite 1980), and a short series and a table do the rest.
__device__ __forceinline__ Sum weight_below(float best, float score, const unsigned* powers) {
  constexpr float steps = 369.32993f, step = 0x1.62e43p-9f, step_rest = -0x1.05c61p-37f;  // 256 / ln 2, ln 2 / 256
  constexpr float rounder = 12582912.f;  // 1.5 x 2^23: added to a small float, the lowest mantissa bits are its integer
  constexpr unsigned rounder_bits = 0x4b400000u;
  const float distance = best - score, back = distance - best;
  if (!(distance <= farthest)) return 0;
  const float error = (best - (distance - back)) + (-score - back);
  const float rounded = fmaf(distance, steps, rounder), count = rounded - rounder;
  const unsigned n = __float_as_uint(rounded) - rounder_bits;
  const float high = fmaf(-count, step, distance), low = fmaf(-count, step_rest, error);
  const float rest = high + low;
  const float power = fmaf(rest * rest, fmaf(rest, -1.f / 6, 0.5f), -low) - high;  // exp(-rest) - 1
  const unsigned scaled =
      __float_as_uint(fmaf(power, static_cast<float>(1u << power_bits), rounder)) - rounder_bits + (1u << power_bits);
  const int shift = 2 * power_bits - weight_bits + static_cast<int>(n / power_steps);
  return ((static_cast<Sum>(powers[n % power_steps]) * scaled >> (shift - 1)) + 1) >> 1;
}

}  // namespace pm::ops::cuda
