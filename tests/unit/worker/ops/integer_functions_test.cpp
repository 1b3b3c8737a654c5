// SPDX-License-Identifier: Apache-2.0
// Functions of integers, against integers that transformers 5 made (models/ibert/quant_modules.py).
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "worker/ops/integers/integer_functions.h"

namespace pm::ops {
namespace {

using Numbers = std::vector<float>;

at::Tensor row(const Numbers& numbers) { return at::tensor(numbers).unsqueeze(0); }

ScaledIntegers scaled(const Numbers& integers, const Numbers& scale) {
  const at::Tensor steps = at::tensor(scale);
  return {row(integers) * steps, steps};
}

void expect_integers(const ScaledIntegers& found, const Numbers& expected) {
  const at::Tensor integers = at::round(found.values / found.scale);
  EXPECT_TRUE(at::equal(integers, row(expected))) << integers;
}

TEST(Quantized, ScalesFillTheIntegersOfTheirBits) {
  EXPECT_TRUE(at::allclose(symmetric_scale(at::tensor({2.54F, 0.F}), 8), at::tensor({0.02F, 1e-8F / 127}), 1e-6, 0));
  const at::Tensor w =
      at::tensor({0.5F, -1.F, 0.254F, 0.9999F, 1e-9F, 2e-9F, -3e-9F, 0.F, 1.27F, -1.27F, 0.005F, 0.015F}).view({3, 4});
  const at::Tensor scale = symmetric_scale(w.abs().amax(1), 8);
  const at::Tensor expected =
      at::tensor({64.F, -127.F, 32.F, 126.F, 13.F, 25.F, -38.F, 0.F, 126.F, -127.F, 0.F, 2.F}).view({3, 4});
  EXPECT_TRUE(at::equal(to_integers(w, 8, scale.unsqueeze(1)), expected)) << "the largest integer is n - 1";
  EXPECT_TRUE(
      at::equal(to_integers(at::tensor({0.1F, 0.F, -3.F}), 32, scale * 0.02F), at::tensor({635.F, 0.F, -15000.F})));
}

TEST(Quantized, ActivationsAreRescaledInFixedPointByAScaleOfEachColumn) {
  const at::Tensor scale = symmetric_scale(at::tensor({2.5F}), 8);
  const ScaledIntegers x = scaled({-3000, 12345, 250, 125, -125, 40, 9, -7},
                                  {0.001F, 0.001F, 0.002F, 0.0787401F, 0.0787401F, -0.01F, 0.3F, 0.05F});
  expect_integers(rescaled(x, 8, scale), {-128, 127, 25, 127, -128, -20, 127, -18});
  expect_integers(rescaled_sum(x, scaled({10, -20, 30, -40, 50, -60, 70, -80}, {0.011F}), 8, scale),
                  {-128, 127, 42, 127, -128, -54, 127, -63});
  EXPECT_TRUE(at::equal(rescaled(x, 8, scale).scale, scale));
}

TEST(Quantized, HalvesAreRoundedToEvenIntegers) {
  expect_integers(rescaled(scaled({1, 3, 5, -1, -3, 255, -255, -257}, {1}), 8, at::tensor({2.F})),
                  {0, 2, 2, 0, -2, 127, -128, -128});
}

TEST(Quantized, NumbersOfFloatingPointAreRounded) {
  expect_integers(rounded(row({-3, 2.49F, 0.01F, -0.0098425F, 0.1F, 2.5F}), 8, symmetric_scale(at::tensor({2.5F}), 8)),
                  {-127, 126, 1, 0, 5, 126});
}

TEST(Quantized, GeluIsAPolynomialOfIntegers) {
  const ScaledIntegers found = integer_gelu(
      scaled({-900, -400, -37, 0, 5, 250, 1001, 3}, {0.003F, 0.004F, 0.01F, 0.02F, 0.5F, 0.001F, 0.0021F, 0.3F}));
  expect_integers(found, {900, 1600, 148, 0, -10, -134250, -190190, -6});
  EXPECT_TRUE(at::allclose(found.scale,
                           at::tensor({-3.1939584e-05F, -7.570866e-05F, -0.00118294754F, -0.00946358033F, -147.868439F,
                                       -1.18294781e-06F, -1.09552757e-05F, -31.9395847F}),
                           1e-6, 0));
}

TEST(Quantized, SoftmaxGivesShares) {
  const Numbers scores{100, 250, -3000, 0, 7, 249}, equal{-5, -5, -5, -5, -5, -5};
  const float largest = 749502594530744.2F;  // exponent of the largest score at this scale
  const auto shares = [&](const Numbers& given, float range) {
    return integer_softmax(scaled(given, {0.002F}), symmetric_scale(at::tensor({range}), 16)) * softmax_steps;
  };
  EXPECT_TRUE(at::equal(shares(scores, largest), row({47, 64, 0, 39, 39, 64})));
  EXPECT_TRUE(at::equal(shares(equal, largest), row({42, 42, 42, 42, 42, 42}))) << "rounded down";
  EXPECT_TRUE(at::equal(shares(scores, largest / 3), row({51, 51, 0, 51, 51, 51}))) << "clamped to the range";
}

TEST(Quantized, LayerNormHasItsShift) {
  const at::Tensor weight = at::tensor({1.F, 0.5F, -2.F, 1.25F, 0.75F, 1.F}),
                   bias = at::tensor({0.F, 0.25F, 1.F, -0.5F, 0.125F, 3.F});
  const auto normed = [&](const Numbers& integers, float shift) {
    return integer_layer_norm(scaled(integers, {0.001F}), weight, bias, at::tensor({shift}));
  };
  const Numbers wide{100, -2000, 3555, 17, 40, 900}, narrow{1, 2, 3, 4, 5, 7};
  expect_integers(normed(wide, 0), {-89035464, -427991552, 610049152, -286436288, -31923234, 1438646272});
  expect_integers(normed(narrow, 0), {-805306368, -317694272, -487612096, -175341296, 341494336, 2120366080});
  expect_integers(normed(narrow, 3), {-402653184, -49258832, -353394368, -175341296, 207276608, 1717712896});
  EXPECT_TRUE(at::allclose(
      normed(wide, 3).values,
      row({-0.203113496F, -0.488181114F, -2.78336787F, -0.816796422F, -0.0546190217F, 3.28193355F}), 1e-6, 0));
}

}  // namespace
}  // namespace pm::ops
