// SPDX-License-Identifier: Apache-2.0
// Tests the forms of a weight: empty, resident, INT8 and gathered. All but the empty one give the same results.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "worker/layers/weight.h"

namespace pm::layers {
namespace {

constexpr int64_t out = 6, in = 4, group = 2;

at::Tensor matrix() { return at::arange(out * in, at::kFloat).view({out, in}) / 8 - 1; }

ops::QuantizedMatrix int8_matrix() {
  return {.codes = at::arange(out * in, at::kChar).view({out, in}) - 12,
          .scales = at::full({out, in / group}, 0.5, at::kBFloat16),
          .layout = {.in = in, .group = group}};
}

/// Gives a matrix in tiles of up to four rows.
class TileGatherer final : public WeightGatherer {
 public:
  void tiles(int weight, const std::function<void(int64_t first, const Weight& rows)>& use) override {
    EXPECT_EQ(weight, 7);
    for (int64_t first = 0; first < out; first += 4)
      use(first, Weight(matrix().narrow(0, first, std::min<int64_t>(4, out - first))));
  }
  at::Tensor look_up(int weight, const at::Tensor& ids) override {
    EXPECT_EQ(weight, 7);
    return at::index_select(matrix(), 0, ids);
  }
};

void expect_uses_of(const Weight& weight, const at::Tensor& expected) {
  EXPECT_TRUE(weight.defined());
  EXPECT_EQ(weight.size(0), out);
  EXPECT_EQ(weight.size(1), in);
  EXPECT_TRUE(at::equal(weight.value(), expected));
  const at::Tensor ids = at::tensor({5, 0, 5}, at::kLong);
  EXPECT_TRUE(at::equal(weight.look_up(ids), at::index_select(expected, 0, ids)));
  const at::Tensor x = at::arange(3 * in, at::kFloat).view({3, in}), bias = at::arange(out, at::kFloat);
  EXPECT_TRUE(at::allclose(weight.linear(x, bias), at::matmul(x, expected.t()) + bias));
  EXPECT_TRUE(at::allclose(weight.linear(x), at::matmul(x, expected.t())));
  std::vector<at::Tensor> tiles;
  weight.tiles([&](int64_t first, const at::Tensor& rows) {
    EXPECT_TRUE(at::equal(rows, expected.narrow(0, first, rows.size(0))));
    tiles.push_back(rows.clone());
  });
  EXPECT_TRUE(at::equal(at::cat(tiles), expected));
}

TEST(Weight, AResidentTensorIsUsedAsItIs) {
  const at::Tensor tensor = matrix();
  const Weight weight(tensor);
  expect_uses_of(weight, tensor);
  EXPECT_FALSE(weight.is_gathered());
  EXPECT_TRUE(weight.value().is_same(tensor));
}

TEST(Weight, AnQuantizedMatrixIsScaledWhereItIsUsed) {
  const Weight weight(int8_matrix());
  expect_uses_of(weight, ops::dequantized(int8_matrix()));
  EXPECT_FALSE(weight.is_gathered());
}

TEST(Weight, AGatheredMatrixIsPutTogetherFromItsTiles) {
  TileGatherer gatherer;
  const Weight weight(gatherer, 7, {out, in});
  expect_uses_of(weight, matrix());
  EXPECT_TRUE(weight.is_gathered());
}

TEST(Weight, AnEmptyWeightHasNoValueAndNoUses) {
  for (const Weight& weight : {Weight(), Weight(at::Tensor())}) {
    EXPECT_FALSE(weight.defined());
    EXPECT_FALSE(weight.is_gathered());
    EXPECT_FALSE(weight.value().defined());
    EXPECT_THROW(weight.size(0), std::logic_error);
    EXPECT_THROW(weight.linear(matrix()), std::logic_error);
    EXPECT_THROW(weight.look_up(at::zeros({1}, at::kLong)), std::logic_error);
  }
}

}  // namespace
}  // namespace pm::layers
