// SPDX-License-Identifier: Apache-2.0
#include "worker/ops/integers/integer_functions.h"

#include <ATen/ATen.h>

#include <cmath>

namespace pm::ops {

namespace {

constexpr double two_to_the(int power) { return static_cast<double>(int64_t{1} << power); }

/// Returns number / x as PyTorch computes it for Python's numbers.
at::Tensor divided_by(double number, const at::Tensor& x) { return at::reciprocal(x) * number; }

/// The mantissas of 31 bits that fixed-point multiplication takes.
constexpr int mantissa_bits = 31;

/// Returns integers at the scale `from` as those at the scale `to`, in double.
at::Tensor in_fixed_point(const ScaledIntegers& x, const at::Tensor& to) {
  const at::Tensor integers = at::round(x.values / x.scale);
  const auto [fraction, exponent] = at::frexp(x.scale.to(at::kDouble) / to.to(at::kDouble));
  const at::Tensor mantissa = fraction * two_to_the(mantissa_bits);
  const at::Tensor rounded = at::sign(mantissa) * at::floor(at::abs(mantissa) + 0.5);  // half away from zero
  return at::round(integers.to(at::kDouble) * rounded / at::pow(2.0, mantissa_bits - exponent.to(at::kDouble)));
}

ScaledIntegers clamped(const at::Tensor& integers, int bits, const at::Tensor& scale) {
  const double most = two_to_the(bits - 1) - 1;
  return {at::clamp(integers.to(at::kFloat), -most - 1, most) * scale, scale};
}

/// Integers and their scale, which they are not multiplied by.
struct Unscaled {
  at::Tensor integers, scale;
};

/// Returns the error function, of which GELU is made.
Unscaled integer_erf(const at::Tensor& integers, const at::Tensor& scale) {
  constexpr double a = -0.2888, b = -1.769, c = 1 / a;
  constexpr int shift = 14;
  const at::Tensor offset = at::floor(divided_by(b, scale)), constant = at::floor(divided_by(c, at::pow(scale, 2)));
  const at::Tensor bounded = at::min(at::abs(integers), -offset);
  const at::Tensor y = at::sign(integers) * (at::pow(bounded + offset, 2) + constant);
  return {at::floor(y / two_to_the(shift)), at::pow(scale, 2) * a * two_to_the(shift)};
}

/// The octaves that integer_exp() tells apart.
constexpr int octaves = 30;

/// Returns exp of integers of which none is above 0.
Unscaled integer_exp(const at::Tensor& values, const at::Tensor& scale) {
  constexpr double a = 0.35815147, b = 0.96963238 / a, c = 1.0 / a, minus_log_two = -0.6931;
  const at::Tensor octave = at::floor(divided_by(minus_log_two, scale));
  const at::Tensor integers = at::max(values, octave * octaves);
  const at::Tensor whole = at::floor(integers / octave), rest = integers - octave * whole;
  const at::Tensor offset = at::floor(divided_by(b, scale)), constant = at::floor(divided_by(c, at::pow(scale, 2)));
  const at::Tensor y = (rest + offset) * rest + constant;
  return {at::clamp_min(at::floor(y * at::pow(2, octaves - whole)), 0), at::pow(scale, 2) * a / two_to_the(octaves)};
}

}  // namespace

at::Tensor symmetric_scale(const at::Tensor& largest, int bits) {
  return at::clamp_min(largest, 1e-8) / (two_to_the(bits - 1) - 1);
}

at::Tensor to_integers(const at::Tensor& x, int bits, const at::Tensor& scale) {
  const double most = two_to_the(bits - 1) - 1;
  return at::clamp(at::round(divided_by(1.0, scale) * x), -most, most - 1);
}

ScaledIntegers rounded(const at::Tensor& x, int bits, const at::Tensor& scale) {
  return {to_integers(x, bits, scale) * scale, scale};
}

ScaledIntegers rescaled(const ScaledIntegers& x, int bits, const at::Tensor& scale) {
  return clamped(in_fixed_point(x, scale), bits, scale);
}

ScaledIntegers rescaled_sum(const ScaledIntegers& x, const ScaledIntegers& added, int bits, const at::Tensor& scale) {
  return clamped(in_fixed_point(added, scale) + in_fixed_point(x, scale), bits, scale);
}

ScaledIntegers integer_gelu(const ScaledIntegers& x) {
  constexpr double root_of_two = 1.4142;
  const at::Tensor integers = x.values / x.scale;
  const Unscaled erf = integer_erf(integers, x.scale / root_of_two);
  const at::Tensor one = at::floor_divide(at::ones_like(erf.scale), erf.scale);
  const at::Tensor scale = x.scale * erf.scale / 2;
  return {integers * (erf.integers + one) * scale, scale};
}

at::Tensor integer_softmax(const ScaledIntegers& scores, const at::Tensor& exponent_scale) {
  constexpr int exponent_bits = 16, most_bits = 32;
  const at::Tensor integers = scores.values / scores.scale;
  const Unscaled all = integer_exp(integers - at::amax(integers, -1, /*keepdim=*/true), scores.scale);
  // transformers rescales the integers as if they were values: the range that it measured is that of integers
  const ScaledIntegers narrow = rescaled({all.integers, all.scale}, exponent_bits, exponent_scale);
  const at::Tensor exponents = narrow.values / narrow.scale;
  const at::Tensor factor = at::floor(divided_by(two_to_the(most_bits), exponents.sum(-1, /*keepdim=*/true)));
  return at::floor(exponents * factor / (two_to_the(most_bits) / softmax_steps)) / softmax_steps;
}

ScaledIntegers integer_layer_norm(const ScaledIntegers& x, const at::Tensor& weight, const at::Tensor& bias,
                                  const at::Tensor& shift) {
  const at::Tensor integers = x.values / x.scale;
  const at::Tensor centered = integers - at::round(integers.mean(-1, /*keepdim=*/true)), power = at::pow(2, shift);
  const at::Tensor squares = at::pow(at::floor(centered / power), 2);
  const at::Tensor deviation = at::floor(at::sqrt(squares.sum(-1, /*keepdim=*/true))) * power;
  const at::Tensor factor = at::floor(divided_by(two_to_the(31), deviation));
  // the root of the width as F32, times 2^-30
  const at::Tensor step =
      at::full({1}, std::sqrt(static_cast<float>(x.values.size(-1))) / two_to_the(30), weight.options());
  const at::Tensor offset = at::floor(bias / weight / step), scale = weight * step;
  return {(at::floor(centered * factor / 2) + offset) * scale, scale};
}

}  // namespace pm::ops
