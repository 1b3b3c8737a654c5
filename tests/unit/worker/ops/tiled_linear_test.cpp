// SPDX-License-Identifier: Apache-2.0
// Products on the matrix unit compared with fp64. They are skipped on CPUs without one.
#include "worker/ops/cpu/tiled_linear.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "worker/ops/cpu/types.h"
#include "worker/ops/quantized_matrix.h"

namespace pm::ops {
namespace {

class TiledLinear : public testing::Test {
 protected:
  void SetUp() override {
    if (!kernels().tiles) GTEST_SKIP() << "this CPU has no AMX";
    at::manual_seed(1);
  }
};

/// Expects the products of x with weights that are `wide` in fp32. What operands lack in their parts is independent
/// from input to input, so that errors grow with the root of their number. With codes they are those of fp32 sums.
void expect_products(const at::Tensor& x, const Gemv& weights, const at::Tensor& wide, const at::Tensor& bias = {}) {
  const bool codes = weights.group > 0;
  at::Tensor want = at::mm(x.to(at::kDouble), wide.to(at::kDouble).t());
  if (bias.defined()) want = want + bias.to(at::kDouble);
  const double error = (tiled_linear(x, weights, bias).to(at::kDouble) - want).abs().max().item<double>();
  EXPECT_LT(error, (codes ? 0.2 : 1) * (2e-4 + 2e-5 * std::sqrt(static_cast<double>(weights.in))))
      << x.size(0) << " rows, [" << weights.out << ", " << weights.in << "]";
}

TEST_F(TiledLinear, HasTheProductsOfFp64ForEverySizeOfEachOperand) {
  for (at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (int64_t in : {1, 31, 32, 33, 1000, 1024, 1025, 2080}) {
      const at::Tensor w = at::randn({300, in}).to(type), x = at::randn({70, in}), b = at::randn({300}).to(type);
      for (int64_t rows : {1, 15, 16, 17, 32, 33, 70})
        expect_products(x.narrow(0, 0, rows), described(w), w.to(at::kFloat), rows % 2 ? b : at::Tensor());
      for (int64_t out : {1, 15, 16, 17, 32, 33, 256, 257})
        expect_products(x.narrow(0, 0, 20), described(w.narrow(0, 0, out)), w.narrow(0, 0, out).to(at::kFloat));
    }
  }
}

TEST_F(TiledLinear, HasTheProductsOfCodesInGroupsOfEverySize) {
  for (const CodeLayout& layout :
       {CodeLayout{7, 32}, CodeLayout{2080, 32}, CodeLayout{320, 80}, CodeLayout{2400, 80}, CodeLayout{1500, 100},
        CodeLayout{48, 8}, CodeLayout{7, 32, 4}, CodeLayout{2080, 32, 4}, CodeLayout{333, 32, 4}}) {
    const QuantizedMatrix w = quantized(at::randn({45, layout.in}), layout);
    expect_products(at::randn({50, layout.in}), described(w), dequantized(w));
    const QuantizedMatrix part = w.rows(11, 20);
    expect_products(at::randn({50, layout.in}), described(part), dequantized(part));
  }
}

TEST_F(TiledLinear, RowsHaveTheSameBitsInAnyCompanyAndByAnyNumberOfThreads) {
  const at::Tensor w = at::randn({530, 1100}).to(at::kBFloat16), x = at::randn({1100, 1100});
  const at::Tensor whole = tiled_linear(x, described(w), {});
  const int before = at::get_num_threads();
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 17}, {500, 40}, {1099, 1}, {3, 600}}) {
    at::set_num_threads(count % 2 ? 1 : 3);
    EXPECT_TRUE(at::equal(tiled_linear(x.narrow(0, first, count), described(w), {}), whole.narrow(0, first, count)))
        << count << " rows from " << first;
  }
  at::set_num_threads(before);
}

TEST_F(TiledLinear, OfNoOutputsIsEmpty) {
  const at::Tensor w = at::ones({0, 40}).to(at::kBFloat16);
  EXPECT_EQ(tiled_linear(at::ones({18, 40}), described(w), {}).numel(), 0);
}

TEST_F(TiledLinear, InfinitiesAndNaNsStayInTheirRows) {
  const at::Tensor w = at::ones({20, 40}).to(at::kBFloat16), x = at::ones({18, 40});
  x[3][5] = std::numeric_limits<float>::infinity();
  x[4][6] = NAN;
  const at::Tensor y = tiled_linear(x, described(w), {});
  EXPECT_EQ(y[3][0].item<float>(), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(y[4][19].item<float>()));
  EXPECT_EQ(y[2][0].item<float>(), 40);
  EXPECT_EQ(y[5][7].item<float>(), 40);
}

TEST_F(TiledLinear, NumbersOfSixteenBitsAreExact) {
  const at::Tensor x =
      at::randn({16, 1}).to(at::kBFloat16).to(at::kFloat) * 0x1.01p0f;  // sixteen bits of a significand
  for (at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor one = at::ones({1, 1}).to(type);
    EXPECT_TRUE(at::equal(tiled_linear(x, described(one), {}), x));
  }
  const at::Tensor half = at::randn({300, 1}).to(at::kHalf);
  EXPECT_TRUE(at::equal(tiled_linear(at::ones({1, 1}), described(half), {}).t(), half.to(at::kFloat)));
}

}  // namespace
}  // namespace pm::ops
