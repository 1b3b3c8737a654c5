// SPDX-License-Identifier: Apache-2.0
// Linear layers compared with fp64, for each weight type.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/ops/reference.h"
#include "worker/ops/cpu/kernels/kernels.h"
#include "worker/ops/linear.h"
#include "worker/ops/quantized_matrix.h"

namespace pm::ops {
namespace {

TEST(Linear, SixteenBitWeightsEnterAsStoredAndSumInFp32) {
  at::manual_seed(1);
  for (at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (int64_t out : {1, 33, 5000}) {
      const at::Tensor w = at::randn({out, 70}).to(type), b = at::randn({out}).to(type),
                       x = reference::rounded_for(type, at::randn({3, 70}));
      const at::Tensor want = at::mm(x.to(at::kDouble), w.to(at::kDouble).t()) + b.to(at::kDouble);
      const at::Tensor got = ops::linear(x, w, b);
      EXPECT_EQ(got.scalar_type(), at::kFloat);
      EXPECT_LT((got.to(at::kDouble) - want).abs().max().item<double>(), 3e-5) << c10::toString(type) << " " << out;
    }
  }
}

TEST(Linear, FewRowsGiveTheSameBitsAloneAndTogether) {
  at::manual_seed(3);
  for (at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (int64_t in : {1, 15, 16, 17, 333}) {
      const at::Tensor w = at::randn({45, in}).to(type), x = reference::rounded_for(type, at::randn({8, in}));
      const at::Tensor want = at::mm(x.to(at::kDouble), w.to(at::kDouble).t());
      for (int64_t rows = 1; rows <= 8; ++rows) {
        const at::Tensor got = ops::linear(x.narrow(0, 0, rows), w);
        EXPECT_LT((got.to(at::kDouble) - want.narrow(0, 0, rows)).abs().max().item<double>(), 1e-4)
            << rows << " rows of " << in;
        EXPECT_TRUE(at::equal(got[rows - 1], ops::linear(x.narrow(0, rows - 1, 1), w)[0]));
      }
    }
  }
}

TEST(Linear, UnroundedHasTheProductsOfFp64OnEveryCpu) {
  at::manual_seed(5);
  for (at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    const at::Tensor w = at::randn({9, 300}).to(type), b = at::randn({9}), x = at::randn({11, 300});
    const at::Tensor want = at::mm(x.to(at::kDouble), w.to(at::kDouble).t());
    const auto error = [](const at::Tensor& got, const at::Tensor& wanted) {
      return (got.to(at::kDouble) - wanted).abs().max().item<double>();
    };
    EXPECT_LT(error(ops::unrounded_linear(x, w, b), want + b.to(at::kDouble)), 5e-5) << c10::toString(type);
    const double rounded = error(ops::linear(x, w), want);
    if (type == at::kBFloat16 && kernels().bf16_products)
      EXPECT_GT(rounded, 1e-3) << "or there would be no need of it";
    else
      EXPECT_LT(rounded, 5e-5) << c10::toString(type);
  }
}

/// With weights in BF16, products of CPUs that multiply bf16 numbers count subnormal ones as zero.
TEST(Linear, EveryHalfIsReadExactly) {
  const at::Tensor all = at::arange(-32768, 32768, at::kLong).to(at::kShort);  // every pattern of 16 bits
  for (at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const at::Tensor w = all.view(type), wide = w.to(at::kFloat);
    const at::Tensor finite = at::isfinite(wide).nonzero().squeeze(1);
    const at::Tensor column = at::index_select(w, 0, finite).unsqueeze(1);
    at::Tensor want = at::index_select(wide, 0, finite);
    if (type == at::kBFloat16 && kernels().bf16_products)
      want = at::where(want.abs() < 0x1p-126f, at::zeros({1}), want);
    EXPECT_TRUE(at::equal(ops::linear(at::ones({1, 1}), column).squeeze(0), want));  // the end of a row
    const at::Tensor row = at::zeros({finite.size(0), 16}, type);
    row.select(1, 5).copy_(column.squeeze(1));
    EXPECT_TRUE(at::equal(ops::linear(at::ones({1, 16}), row).squeeze(0), want));  // inside a vector
  }
}

/// Returns w in whole groups [out, groups, group].
at::Tensor in_groups(const at::Tensor& w, int64_t group) {
  const int64_t out = w.size(0), in = w.size(1), groups = (in + group - 1) / group;
  at::Tensor padded = at::zeros({out, groups * group});
  padded.narrow(1, 0, in).copy_(w);
  return padded.reshape({out, groups, group});
}

/// Implements the rule of eight bits (quantized_matrix.h) with ATen.
QuantizedMatrix eight_bits(const at::Tensor& w, int64_t group) {
  const at::Tensor padded = in_groups(w, group), exact = padded.abs().amax(2) / 127.f;
  const at::Tensor scale =
      exact.view(at::kInt).add(0xffff).bitwise_right_shift(16).bitwise_left_shift(16).view(at::kFloat);
  const at::Tensor numbers = at::where(scale.unsqueeze(2) > 0, at::round(padded / scale.unsqueeze(2)), at::zeros({1}));
  return {numbers.flatten(1).narrow(1, 0, w.size(1)).to(at::kChar).contiguous(),
          scale.to(at::kBFloat16),
          {w.size(1), group}};
}

/// Implements the rule of four bits with ATen.
QuantizedMatrix four_bits(const at::Tensor& w) {
  const at::Tensor padded = in_groups(w, 32),
                   extreme = padded.gather(2, padded.abs().argmax(2, /*keepdim=*/true)).squeeze(2);
  const at::Tensor scale = (extreme / -8.f).to(at::kBFloat16), wide = scale.to(at::kFloat).unsqueeze(2);
  const at::Tensor codes =
      at::where(wide != 0, at::round(padded / wide).clamp(-8, 7), at::zeros({1})).add(8).to(at::kByte);
  return {codes.narrow(2, 0, 16).bitwise_or(codes.narrow(2, 16, 16).bitwise_left_shift(4)).flatten(1),
          scale.abs().where(wide.squeeze(2) == 0, scale),
          {w.size(1), 32, 4}};
}

void expect_equal(const QuantizedMatrix& got, const QuantizedMatrix& want) {
  EXPECT_TRUE(at::equal(got.codes, want.codes));
  EXPECT_TRUE(at::equal(got.scales.view(at::kShort), want.scales.view(at::kShort)));
}

at::Tensor rows_of_many_sizes(int64_t in) {
  at::Tensor w = at::randn({37, in}) * at::exp(4 * at::randn({37, 1}));
  w[3].zero_();
  return w;
}

TEST(Codes, OfEightBitsFollowTheRuleExactlyAndAreOffByAtMostHalfAStep) {
  at::manual_seed(4);
  for (int64_t group : {1, 20, 32, 80}) {
    SCOPED_TRACE(group);
    const at::Tensor w = rows_of_many_sizes(200);
    const QuantizedMatrix got = quantized(w, {.group = group});
    expect_equal(got, eight_bits(w, group));
    EXPECT_LE(got.codes.abs().max().item<int>(), 127);
    const QuantizedMatrix steps{at::ones_like(got.codes), got.scales, got.layout};
    EXPECT_LE(((dequantized(got) - w).abs() / dequantized(steps).clamp_min(1e-30)).max().item<float>(), 0.5001f);
  }
}

TEST(Codes, OfFourBitsFollowTheRuleExactlyAndKeepTheLargestWeights) {
  at::manual_seed(14);
  for (int64_t in : {32, 200, 7, 1}) {
    SCOPED_TRACE(in);
    at::Tensor w = rows_of_many_sizes(in);
    w[4].fill_(-1e-45f);  // the scale is 0 in bf16
    const QuantizedMatrix got = quantized(w, {.bits = 4});
    expect_equal(got, four_bits(w));
    const at::Tensor off = in_groups(dequantized(got) - w, 32).abs().amax(2), step = got.scales.to(at::kFloat).abs();
    EXPECT_LE((off - step * 1.04f).max().item<float>(), 1e-30f) << "a step where the largest has the other sign";
    const at::Tensor groups = in_groups(w, 32), most = groups.abs().amax(2), kept = in_groups(dequantized(got), 32);
    EXPECT_LE(((kept.abs().amax(2) - most).abs() - most / 256).max().item<float>(), 1e-30f);
  }
}

/// Numbers of four bits by rows: all of them, those of one sign, few different ones, multiples of three, none.
at::Tensor numbers_of_four_bits(int64_t in) {
  at::Tensor numbers = at::randint(-8, 8, {7, in}).to(at::kFloat);
  numbers[1].abs_().clamp_max_(7);
  numbers[2].clamp_(-1, 1);
  numbers[3].clamp_(-2, 2).mul_(3);
  numbers[4].clamp_(-1, 0).mul_(7);
  numbers[5].zero_();
  numbers[6].zero_().narrow(0, 0, 1).fill_(5);
  return numbers;
}

TEST(Codes, OfWeightsThatWereDecodedFromFourBitsStandForTheSameWeights) {
  at::manual_seed(24);
  constexpr int64_t in = 256;
  const at::Tensor numbers = numbers_of_four_bits(in);
  for (const at::ScalarType scale_type : {at::kBFloat16, at::kHalf}) {
    for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
      for (const int64_t group : {int64_t{32}, int64_t{128}, in}) {
        SCOPED_TRACE(std::string(c10::toString(scale_type)) + " " + c10::toString(type) + " " + std::to_string(group));
        const at::Tensor scales = (at::rand({numbers.size(0), in / group}) + 0.01).to(scale_type).to(at::kFloat),
                         exact = numbers * scales.repeat_interleave(group, 1);
        const at::Tensor off = (dequantized(quantized(exact.to(type).to(at::kFloat), {.bits = 4})) - exact).abs();
        // the scale is rounded to bf16, and so may be the weight from which it is found
        const float share = scale_type == at::kBFloat16 && type == at::kFloat ? 0 : 0x1p-7f;
        EXPECT_LE((off - share * exact.abs()).max().item<float>(), 0);
      }
    }
  }
}

TEST(Codes, OfWeightsWithZeroPointsOrOfPartsOfGroupsAreNew) {
  const at::Tensor numbers = at::arange(0, 32).remainder(16).to(at::kFloat).unsqueeze(0) * 0.25;  // 0 to 15
  EXPECT_GT((dequantized(quantized(numbers, {.bits = 4})) - numbers).abs().max().item<float>(), 0.2f);
  const at::Tensor part = (at::arange(0, 15) - 7).to(at::kFloat).unsqueeze(0) * 0.25;  // -7 to 7
  EXPECT_GT((dequantized(quantized(part, {.bits = 4})) - part).abs().max().item<float>(), 0.05f);
}

TEST(Codes, OfNumbersThatAreNotFiniteAreRefused) {
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    for (const int bits : {8, 4}) {
      at::Tensor w = at::ones({1, 40});
      w[0][35] = bad;
      EXPECT_THROW(quantized(w, {.bits = bits}), std::invalid_argument);
    }
  }
}

TEST(Codes, HaveProductsOfTheDequantizedMatrixForFewAndManyRows) {
  at::manual_seed(5);
  for (const CodeLayout& layout : {CodeLayout{0, 32}, CodeLayout{7, 32}, CodeLayout{333, 32}, CodeLayout{1024, 32},
                                   CodeLayout{320, 80}, CodeLayout{100, 20}, CodeLayout{0, 32, 4}, CodeLayout{7, 32, 4},
                                   CodeLayout{333, 32, 4}, CodeLayout{1024, 32, 4}}) {
    const at::Tensor b = at::randn({45}).to(at::kBFloat16);
    const QuantizedMatrix w = quantized(at::randn({45, layout.in}), layout);
    const at::Tensor x = at::randn({200, layout.in}),
                     want = at::mm(x.to(at::kDouble), dequantized(w).to(at::kDouble).t()) + b.to(at::kDouble);
    for (int64_t rows : {1, 2, 3, 5, 8, 9, 40, 200}) {
      const at::Tensor got = ops::linear(x.narrow(0, 0, rows), w, b);
      EXPECT_LT((got.to(at::kDouble) - want.narrow(0, 0, rows)).abs().max().item<double>(), 2e-4)
          << layout.bits << " bits, " << rows << " rows of " << layout.in;
      const bool same = rows > 8 || at::equal(got[rows - 1], ops::linear(x.narrow(0, rows - 1, 1), w, b)[0]);
      EXPECT_TRUE(same) << layout.bits << " bits, " << rows << " rows of " << layout.in;
    }
  }
}

TEST(Linear, GivesARowTheSameBitsBesideAsManyRowsAsItSays) {
  at::manual_seed(6);
  const at::Tensor x = at::randn({100, 512}), w = at::randn({33, 512});
  for (at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const int bits : {0, 4, 8}) {
      const int64_t rows = *rows_of_equal_bits(at::kCPU, type, bits > 0);
      ASSERT_GE(rows, 8) << "a sequence with seven drafts";
      const QuantizedMatrix codes = quantized(w, {.in = 512, .bits = bits > 0 ? bits : 8}, type);
      const at::Tensor stored = w.to(type);
      const auto product = [&](const at::Tensor& some) {
        return bits > 0 ? ops::linear(some, codes, {}) : ops::linear(some, stored);
      };
      const at::Tensor whole = product(x.narrow(0, 0, rows));
      for (int64_t row = 0; row < rows; ++row)
        EXPECT_TRUE(at::equal(whole[row], product(x.narrow(0, row, 1))[0]))
            << c10::toString(type) << ", " << bits << " bits, row " << row << " of " << rows;
    }
  }
}

TEST(Linear, NoColumnsGiveZeros) {
  const at::Tensor y = ops::linear(at::ones({2, 0}), at::ones({3, 0}));
  EXPECT_EQ(y.abs().sum().item<float>(), 0.f);
}

}  // namespace
}  // namespace pm::ops
