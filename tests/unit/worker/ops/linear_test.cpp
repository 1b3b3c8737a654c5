// SPDX-License-Identifier: Apache-2.0
// Linear layers compared with fp64, for each weight type.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "worker/ops/linear.h"
#include "worker/ops/quantized_matrix.h"

namespace pm::ops {
namespace {

TEST(Linear, SixteenBitWeightsEnterAsStoredAndSumInFp32) {
  at::manual_seed(1);
  for (at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (int64_t out : {1, 33, 5000}) {
      const at::Tensor w = at::randn({out, 70}).to(type), b = at::randn({out}).to(type), x = at::randn({3, 70});
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
      const at::Tensor w = at::randn({45, in}).to(type), x = at::randn({8, in});
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

TEST(Linear, EveryHalfIsReadExactly) {
  const at::Tensor all = at::arange(-32768, 32768, at::kLong).to(at::kShort);  // every pattern of 16 bits
  for (at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const at::Tensor w = all.view(type), wide = w.to(at::kFloat);
    const at::Tensor finite = at::isfinite(wide).nonzero().squeeze(1);
    const at::Tensor column = at::index_select(w, 0, finite).unsqueeze(1), want = at::index_select(wide, 0, finite);
    EXPECT_TRUE(at::equal(ops::linear(at::ones({1, 1}), column).squeeze(0), want));  // the end of a row
    const at::Tensor row = at::zeros({finite.size(0), 16}, type);
    row.select(1, 5).copy_(column.squeeze(1));
    EXPECT_TRUE(at::equal(ops::linear(at::ones({1, 16}), row).squeeze(0), want));  // inside a vector
  }
}

/// Implements the quantisation rule of int8.h with ATen.
QuantizedMatrix quantized(const at::Tensor& w, int64_t group) {
  const int64_t out = w.size(0), in = w.size(1), groups = (in + group - 1) / group;
  at::Tensor padded = at::zeros({out, groups * group});
  padded.narrow(1, 0, in).copy_(w);
  padded = padded.reshape({out, groups, group});
  const at::Tensor exact = padded.abs().amax(2) / 127.f;
  const at::Tensor scale =
      exact.view(at::kInt).add(0xffff).bitwise_right_shift(16).bitwise_left_shift(16).view(at::kFloat);
  const at::Tensor numbers = at::where(scale.unsqueeze(2) > 0, at::round(padded / scale.unsqueeze(2)), at::zeros({1}));
  return {numbers.reshape({out, groups * group}).narrow(1, 0, in).to(at::kChar).contiguous(), scale.to(at::kBFloat16),
          group};
}

TEST(Int8, FollowsTheRuleExactlyAndIsOffByAtMostHalfAStep) {
  at::manual_seed(4);
  for (int64_t group : {1, 20, 32, 80}) {
    at::Tensor w = at::randn({37, 200}) * at::exp(4 * at::randn({37, 1}));
    w[3].zero_();
    const QuantizedMatrix want = quantized(w, group);
    QuantizedMatrix got{at::empty_like(want.codes), at::empty_like(want.scales), group};
    EXPECT_TRUE(quantize(w.const_data_ptr<float>(), 37, 200, group, got.codes.mutable_data_ptr<int8_t>(),
                         static_cast<uint16_t*>(got.scales.mutable_data_ptr())));
    EXPECT_TRUE(at::equal(got.codes, want.codes)) << group;
    EXPECT_TRUE(at::equal(got.scales, want.scales)) << group;
    EXPECT_LE(got.codes.abs().max().item<int>(), 127);
    const at::Tensor steps =
        (dequantized(got) - w).abs() / dequantized({at::ones_like(got.codes), got.scales, group}).clamp_min(1e-30);
    EXPECT_LE(steps.max().item<float>(), 0.5001f);
  }
  at::Tensor bad = at::ones({1, 4});
  bad[0][2] = INFINITY;
  int8_t numbers[4];
  uint16_t scale;
  EXPECT_FALSE(quantize(bad.const_data_ptr<float>(), 1, 4, 4, numbers, &scale));
}

TEST(Int8, ProductsAreThoseOfTheDequantisedMatrixForFewAndManyRows) {
  at::manual_seed(5);
  for (const auto& [in, group] :
       {std::pair<int64_t, int64_t>{0, 32}, {7, 32}, {333, 32}, {1024, 32}, {320, 80}, {100, 20}}) {
    const at::Tensor b = at::randn({45}).to(at::kBFloat16);
    const QuantizedMatrix w = quantized(at::randn({45, in}), group);
    const at::Tensor x = at::randn({200, in}),
                     want = at::mm(x.to(at::kDouble), dequantized(w).to(at::kDouble).t()) + b.to(at::kDouble);
    for (int64_t rows : {1, 2, 3, 5, 8, 9, 40, 200}) {
      const at::Tensor got = ops::linear(x.narrow(0, 0, rows), w, b);
      EXPECT_LT((got.to(at::kDouble) - want.narrow(0, 0, rows)).abs().max().item<double>(), 2e-4)
          << rows << " rows of " << in;
      const bool same = rows > 8 || at::equal(got[rows - 1], ops::linear(x.narrow(0, rows - 1, 1), w, b)[0]);
      EXPECT_TRUE(same) << rows << " rows of " << in;
    }
  }
}

TEST(Linear, NoColumnsGiveZeros) {
  const at::Tensor y = ops::linear(at::ones({2, 0}), at::ones({3, 0}));
  EXPECT_EQ(y.abs().sum().item<float>(), 0.f);
}

}  // namespace
}  // namespace pm::ops
