// Linear against fp64, for each weight type.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "worker/ops/linear.h"

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

TEST(Linear, NoColumnsGiveZeros) {
  const at::Tensor y = ops::linear(at::ones({2, 0}), at::ones({3, 0}));
  EXPECT_EQ(y.abs().sum().item<float>(), 0.f);
}

}  // namespace
}  // namespace pm::ops
