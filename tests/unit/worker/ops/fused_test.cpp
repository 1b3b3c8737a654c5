// Fused operations against the same in fp64 by ATen.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "worker/ops/attention.h"

namespace pm::ops {
namespace {

double error(const at::Tensor& got, const at::Tensor& want) { return (got.to(at::kDouble) - want).abs().max().item<double>(); }

TEST(LayerNorm, IsThatOfAtenForEveryWidthAndTypeOfGain) {
  at::manual_seed(1);
  for (at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (int64_t width : {1, 5, 16, 33, 1024}) {
      const at::Tensor x = at::randn({7, width}) * 3 + 10, gain = at::randn({width}).to(type), bias = at::randn({width}).to(type);
      const at::Tensor wide = x.to(at::kDouble), g = gain.to(at::kDouble), b = bias.to(at::kDouble);
      const double tolerance = width == 1 ? 1e-4 : 2e-5;
      EXPECT_LT(error(layer_norm(x, gain, bias, 1e-5), at::layer_norm(wide, {width}, g, b, 1e-5)), tolerance) << width;
      EXPECT_LT(error(layer_norm(x, gain, {}, 1e-5), at::layer_norm(wide, {width}, g, {}, 1e-5)), tolerance) << width;
      EXPECT_LT(error(layer_norm(x, {}, {}, 1e-5), at::layer_norm(wide, {width}, {}, {}, 1e-5)), tolerance) << width;
    }
  }
}

TEST(RmsNorm, DividesByTheRootOfTheMeanSquare) {
  at::manual_seed(2);
  for (int64_t width : {1, 5, 16, 33, 1024}) {
    const at::Tensor x = at::randn({7, width}) * 3, gain = at::randn({width}).to(at::kBFloat16), wide = x.to(at::kDouble);
    const at::Tensor want = wide / at::sqrt(wide.pow(2).mean(1, true) + 1e-6);
    EXPECT_LT(error(rms_norm(x, gain, 1e-6), want * gain.to(at::kDouble)), 5e-6) << width;
    EXPECT_LT(error(rms_norm(x, {}, 1e-6), want), 5e-6) << width;
    EXPECT_LT(error(rms_norm(x, gain, 1e-6, 1), want * (gain.to(at::kDouble) + 1)), 5e-6) << width;
  }
}

TEST(RmsNorm, TakesColumnsOfAWiderMatrix) {
  at::manual_seed(3);
  const at::Tensor wide = at::randn({4, 40}), part = wide.narrow(1, 3, 20);
  EXPECT_TRUE(at::equal(rms_norm(part, {}, 1e-6), rms_norm(part.contiguous(), {}, 1e-6)));
}

TEST(SumNorms, AreTheNormsOfTheSumWhichStaysInTheFirst) {
  at::manual_seed(6);
  for (int64_t width : {1, 5, 33, 1024}) {
    const at::Tensor x = at::randn({7, width}), residual = at::randn({7, width}), gain = at::randn({width}).to(at::kBFloat16), bias = at::randn({width}).to(at::kBFloat16), sum = x + residual;
    at::Tensor a = x.clone(), b = x.clone(), columns = at::randn({7, width + 3}).narrow(1, 2, width);
    EXPECT_TRUE(at::equal(sum_layer_norm(a, residual, gain, bias, 1e-5), layer_norm(sum, gain, bias, 1e-5)));
    EXPECT_TRUE(at::equal(sum_rms_norm(b, residual, gain, 1e-6, 1), rms_norm(sum, gain, 1e-6, 1)));
    EXPECT_TRUE(at::equal(a, sum) && at::equal(b, sum));
    const at::Tensor of_columns = columns + residual;
    EXPECT_TRUE(at::equal(sum_rms_norm(columns, residual, {}, 1e-6), rms_norm(of_columns, {}, 1e-6)));
    EXPECT_TRUE(at::equal(columns, of_columns));
  }
}

/// Pair i of a head as a complex number, times e^(i angle).
at::Tensor turned(const at::Tensor& x, const at::Tensor& positions, const at::Tensor& frequencies, bool halves, double factor) {
  const int64_t n = frequencies.size(0);
  at::Tensor want = x.to(at::kDouble).clone();
  for (int64_t t = 0; t < x.size(0); ++t) {
    for (int64_t i = 0; i < n; ++i) {
      const int64_t first = halves ? i : 2 * i, second = halves ? n + i : 2 * i + 1;
      const double angle = static_cast<double>((positions[t].to(at::kFloat) * frequencies[i]).item<float>());
      const at::Tensor a = x.select(0, t).select(1, first).to(at::kDouble), b = x.select(0, t).select(1, second).to(at::kDouble);
      want.select(0, t).select(1, first).copy_((a * std::cos(angle) - b * std::sin(angle)) * factor);
      want.select(0, t).select(1, second).copy_((b * std::cos(angle) + a * std::sin(angle)) * factor);
    }
  }
  return want;
}

TEST(Rotate, TurnsPairsByPositionTimesFrequencyAndLeavesTheRest) {
  at::manual_seed(4);
  const at::Tensor positions = at::tensor({0, 1, 7, 4000}, at::kLong), rows = at::randn({4, 100});
  for (int64_t n : {1, 6, 8}) {
    const at::Tensor frequencies = at::rand({n}), x = rows.narrow(1, 13, 60).reshape({4, 3, 20});   // as heads of a wider projection
    for (bool halves : {true, false}) {
      for (double factor : {1.0, 1.25}) {
        EXPECT_LT(error(rotate(x, rotary_angles(positions, frequencies, factor), halves), turned(x, positions, frequencies, halves, factor)), 5e-6) << n << halves;
      }
    }
  }
}

TEST(RotaryWrite, TurnsQueriesAndKeysAndPutsKeysAndValuesIntoTheirPlaces) {
  at::manual_seed(7);
  const int64_t heads = 4, kv_heads = 2, d = 10;
  const at::Tensor qkv = at::randn({3, (heads + 2 * kv_heads) * d}), slots = at::tensor({17, 3, 40}, at::kLong), positions = at::tensor({5, 0, 9}, at::kLong);
  const auto part = [&](int64_t first, int64_t count) { return qkv.narrow(1, first * d, count * d).reshape({3, count, d}); };
  for (bool turns : {false, true}) {
    for (bool values : {false, true}) {
      const Rotation rotation{turns ? rotary_angles(positions, at::rand({3}), 1) : Angles{}, false, values};
      const auto turned = [&](const at::Tensor& x) { return turns ? rotate(x, rotation.angles, false) : x; };
      at::Tensor k = at::zeros({3, kv_heads, 16, d}), v = at::zeros({3, kv_heads, 16, d}), want_k = k.clone(), want_v = v.clone();
      EXPECT_TRUE(at::equal(rotary_write(qkv, heads, rotation, slots, k, v), turned(part(0, heads))));
      write_kv(turned(part(heads, kv_heads)), values ? turned(part(heads + kv_heads, kv_heads)) : part(heads + kv_heads, kv_heads), slots, want_k, want_v);
      EXPECT_TRUE(at::equal(k, want_k) && at::equal(v, want_v)) << turns << values;
    }
  }
}

TEST(GatedSilu, MultipliesTheSecondHalfByTheActivatedFirst) {
  at::manual_seed(5);
  for (int64_t width : {1, 7, 16, 50}) {
    const at::Tensor x = at::randn({3, 2 * width}) * 4, wide = x.to(at::kDouble);
    EXPECT_LT(error(gated_silu(x), at::silu(wide.narrow(1, 0, width)) * wide.narrow(1, width, width)), 1e-5);
  }
}

}  // namespace
}  // namespace pm::ops
