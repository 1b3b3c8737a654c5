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

TEST(Linear, FewRowsGiveTheSameBitsAloneAndTogether) {
  at::manual_seed(3);
  for (at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (int64_t in : {1, 15, 16, 17, 333}) {
      const at::Tensor w = at::randn({45, in}).to(type), x = at::randn({8, in});
      const at::Tensor want = at::mm(x.to(at::kDouble), w.to(at::kDouble).t());
      for (int64_t rows = 1; rows <= 8; ++rows) {
        const at::Tensor got = ops::linear(x.narrow(0, 0, rows), w);
        EXPECT_LT((got.to(at::kDouble) - want.narrow(0, 0, rows)).abs().max().item<double>(), 1e-4) << rows << " rows of " << in;
        EXPECT_TRUE(at::equal(got[rows - 1], ops::linear(x.narrow(0, rows - 1, 1), w)[0]));
      }
    }
  }
}

TEST(Linear, EveryHalfIsReadExactly) {
  const at::Tensor all = at::arange(-32768, 32768, at::kLong).to(at::kShort);   // every pattern of 16 bits
  for (at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const at::Tensor w = all.view(type), wide = w.to(at::kFloat);
    const at::Tensor finite = at::isfinite(wide).nonzero().squeeze(1);
    const at::Tensor column = at::index_select(w, 0, finite).unsqueeze(1), want = at::index_select(wide, 0, finite);
    EXPECT_TRUE(at::equal(ops::linear(at::ones({1, 1}), column).squeeze(0), want));                                       // the end of a row
    const at::Tensor row = at::zeros({finite.size(0), 16}, type);
    row.select(1, 5).copy_(column.squeeze(1));
    EXPECT_TRUE(at::equal(ops::linear(at::ones({1, 16}), row).squeeze(0), want));                                         // inside a vector
  }
}

TEST(Linear, NoColumnsGiveZeros) {
  const at::Tensor y = ops::linear(at::ones({2, 0}), at::ones({3, 0}));
  EXPECT_EQ(y.abs().sum().item<float>(), 0.f);
}

}  // namespace
}  // namespace pm::ops
