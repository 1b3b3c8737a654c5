// SPDX-License-Identifier: Apache-2.0
// Fused operations compared with ATen in fp64.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/ops/reference.h"
#include "worker/ops/attention.h"

namespace pm::ops {
namespace {

double error(const at::Tensor& got, const at::Tensor& want) {
  return (got.to(at::kDouble) - want).abs().max().item<double>();
}

TEST(LayerNorm, IsThatOfAtenForEveryWidthAndTypeOfWeight) {
  at::manual_seed(1);
  for (at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (int64_t width : {1, 5, 16, 33, 1024}) {
      const at::Tensor x = at::randn({7, width}) * 3 + 10, weight = at::randn({width}).to(type),
                       bias = at::randn({width}).to(type);
      const at::Tensor wide = x.to(at::kDouble), g = weight.to(at::kDouble), b = bias.to(at::kDouble);
      const double tolerance = width == 1 ? 1e-4 : 2e-5;
      EXPECT_LT(error(layer_norm(x, weight, bias, 1e-5), at::layer_norm(wide, {width}, g, b, 1e-5)), tolerance)
          << width;
      EXPECT_LT(error(layer_norm(x, weight, {}, 1e-5), at::layer_norm(wide, {width}, g, {}, 1e-5)), tolerance) << width;
      EXPECT_LT(error(layer_norm(x, {}, {}, 1e-5), at::layer_norm(wide, {width}, {}, {}, 1e-5)), tolerance) << width;
    }
  }
}

TEST(RmsNorm, DividesByTheRootOfTheMeanSquare) {
  at::manual_seed(2);
  for (int64_t width : {1, 5, 16, 33, 1024}) {
    const at::Tensor x = at::randn({7, width}) * 3, weight = at::randn({width}).to(at::kBFloat16),
                     wide = x.to(at::kDouble);
    const at::Tensor want = wide / at::sqrt(wide.pow(2).mean(1, true) + 1e-6);
    EXPECT_LT(error(rms_norm(x, weight, 1e-6), want * weight.to(at::kDouble)), 5e-6) << width;
    EXPECT_LT(error(rms_norm(x, {}, 1e-6), want), 5e-6) << width;
    EXPECT_LT(error(rms_norm(x, weight, 1e-6, 1), want * (weight.to(at::kDouble) + 1)), 5e-6) << width;
  }
}

TEST(RmsNorm, TakesColumnsOfAWiderMatrix) {
  at::manual_seed(3);
  const at::Tensor wide = at::randn({4, 40}), part = wide.narrow(1, 3, 20);
  EXPECT_TRUE(at::equal(rms_norm(part, {}, 1e-6), rms_norm(part.contiguous(), {}, 1e-6)));
}

TEST(FusedAddNorms, AreTheNormsOfTheSumWhichReplacesTheFirst) {
  at::manual_seed(6);
  for (int64_t width : {1, 5, 33, 1024}) {
    const at::Tensor x = at::randn({7, width}), residual = at::randn({7, width}),
                     weight = at::randn({width}).to(at::kBFloat16), bias = at::randn({width}).to(at::kBFloat16),
                     sum = x + residual;
    at::Tensor a = x.clone(), b = x.clone(), columns = at::randn({7, width + 3}).narrow(1, 2, width);
    EXPECT_TRUE(at::equal(fused_add_layer_norm(a, residual, weight, bias, 1e-5), layer_norm(sum, weight, bias, 1e-5)));
    EXPECT_TRUE(at::equal(fused_add_rms_norm(b, residual, weight, 1e-6, 1), rms_norm(sum, weight, 1e-6, 1)));
    EXPECT_TRUE(at::equal(a, sum) && at::equal(b, sum));
    const at::Tensor of_columns = columns + residual;
    EXPECT_TRUE(at::equal(fused_add_rms_norm(columns, residual, {}, 1e-6), rms_norm(of_columns, {}, 1e-6)));
    EXPECT_TRUE(at::equal(columns, of_columns));
  }
}

TEST(Rotate, RotatesPairsByPositionTimesFrequencyAndLeavesTheRest) {
  at::manual_seed(4);
  const at::Tensor positions = at::tensor({0, 1, 7, 4000}, at::kLong), rows = at::randn({4, 100});
  for (int64_t n : {1, 6, 8}) {
    const at::Tensor frequencies = at::rand({n}),
                     x = rows.narrow(1, 13, 60).reshape({4, 3, 20});  // as heads of a wider projection
    for (bool is_neox : {true, false}) {
      for (double factor : {1.0, 1.25}) {
        EXPECT_LT(error(rotate(x, rotary_angles(positions, frequencies, factor), is_neox),
                        reference::rotate(x, positions, frequencies, is_neox, factor)),
                  5e-6)
            << n << is_neox;
      }
    }
  }
}

TEST(RotaryWrite, RotatesQueriesAndKeysAndWritesKeysAndValuesToTheirSlots) {
  at::manual_seed(7);
  const int64_t heads = 4, kv_heads = 2, d = 10;
  const at::Tensor qkv = at::randn({3, (heads + 2 * kv_heads) * d}), slots = at::tensor({17, 3, 40}, at::kLong),
                   positions = at::tensor({5, 0, 9}, at::kLong);
  const auto part = [&](int64_t first, int64_t count) {
    return qkv.narrow(1, first * d, count * d).reshape({3, count, d});
  };
  for (bool turns : {false, true}) {
    for (bool values : {false, true}) {
      const Rotation rotation{turns ? rotary_angles(positions, at::rand({3}), 1) : Angles{}, false, values};
      const auto turned = [&](const at::Tensor& x) { return turns ? rotate(x, rotation.angles, false) : x; };
      at::Tensor k = at::zeros({3, kv_heads, 16, d}), v = at::zeros({3, kv_heads, 16, d}), want_k = k.clone(),
                 want_v = v.clone();
      EXPECT_TRUE(at::equal(rotary_write(qkv, heads, {}, rotation, slots, k, v), turned(part(0, heads))));
      write_kv(turned(part(heads, kv_heads)),
               values ? turned(part(heads + kv_heads, kv_heads)) : part(heads + kv_heads, kv_heads), slots, want_k,
               want_v);
      EXPECT_TRUE(at::equal(k, want_k) && at::equal(v, want_v)) << turns << values;
    }
  }
}

/// Norms of heads whose kinds and types of parameters differ.
HeadNorms head_norms(int64_t d) {
  return {
      .query =
          HeadNorm{
              .is_rms = true, .weight = at::randn({d}).to(at::kBFloat16), .bias = {}, .eps = 1e-6, .weight_offset = 1},
      .key = HeadNorm{.is_rms = false, .weight = at::randn({d}), .bias = at::randn({d}), .eps = 1e-5}};
}

TEST(RotaryWrite, NormsHeadsBeforeTheRotation) {
  at::manual_seed(8);
  const int64_t heads = 3, kv_heads = 2;
  for (int64_t d : {10, 33, 600}) {
    for (at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
      const at::Tensor qkv = at::randn({3, (heads + 2 * kv_heads) * d}), slots = at::tensor({17, 3, 40}, at::kLong),
                       positions = at::tensor({5, 0, 9}, at::kLong), frequencies = at::rand({4});
      const at::Tensor wide = qkv.to(at::kDouble).reshape({3, heads + 2 * kv_heads, d});
      const HeadNorms norms = head_norms(d);
      const at::Tensor q = wide.narrow(1, 0, heads), k = wide.narrow(1, heads, kv_heads),
                       normed_q =
                           q / at::sqrt(q.pow(2).mean(2, true) + 1e-6) * (norms.query->weight.to(at::kDouble) + 1),
                       normed_k = at::layer_norm(k, {d}, norms.key->weight.to(at::kDouble),
                                                 norms.key->bias.to(at::kDouble), 1e-5);
      for (bool is_neox : {true, false}) {
        const Rotation rotation{rotary_angles(positions, frequencies, 1), is_neox, false};
        const auto turned = [&](const at::Tensor& x) {
          return reference::rotate(x, positions, frequencies, is_neox, 1);
        };
        at::Tensor keys = at::zeros({3, kv_heads, 16, d}, type), values = at::zeros_like(keys),
                   expected_keys = at::zeros({3, kv_heads, 16, d}, at::kDouble),
                   expected_values = at::zeros_like(expected_keys);
        const at::Tensor queries = rotary_write(qkv, heads, norms, rotation, slots, keys, values);
        for (int64_t token = 0; token < 3; ++token) {
          const int64_t slot = slots[token].item<int64_t>();
          expected_keys[slot / 16].select(1, slot % 16).copy_(turned(normed_k)[token]);
          expected_values[slot / 16].select(1, slot % 16).copy_(wide[token].narrow(0, heads + kv_heads, kv_heads));
        }
        const double unit = type == at::kFloat ? 0 : type == at::kHalf ? 1e-3 : 8e-3;
        EXPECT_LT(error(queries, turned(normed_q)), 2e-5) << d;
        EXPECT_LT(error(keys, expected_keys), 2e-5 + 8 * unit) << d << type;
        EXPECT_LT(error(values, expected_values), 1e-7 + 4 * unit) << d << type;
      }
    }
  }
}

TEST(SiluAndMul, MultipliesTheSecondHalfByTheActivatedFirst) {
  at::manual_seed(5);
  for (int64_t width : {1, 7, 16, 50}) {
    const at::Tensor x = at::randn({3, 2 * width}) * 4, wide = x.to(at::kDouble);
    EXPECT_LT(error(silu_and_mul(x), at::silu(wide.narrow(1, 0, width)) * wide.narrow(1, width, width)), 1e-5);
  }
}

}  // namespace
}  // namespace pm::ops
