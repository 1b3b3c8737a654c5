// SPDX-License-Identifier: Apache-2.0
// Products by vector units compared with fp64, for the operands of every instruction set; the bits depend neither on
// the number of rows nor on how outputs are shared out.
#include "worker/ops/cpu/packed_linear.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/unit/worker/ops/reference.h"
#include "worker/ops/backend.h"
#include "worker/ops/cpu/types.h"
#include "worker/ops/quantized_matrix.h"

namespace pm::ops {
namespace {

struct Operands {
  std::string name;
  const PackedProducts* products;
  std::vector<at::ScalarType> weights;  ///< floating-point types that they take
};

/// Of products that take weights as codes, too, or of all.
std::vector<Operands> operands(bool with_codes) {
  std::vector<Operands> found;
  for (int i = 0; i < supported_kernels().count; ++i) {
    const Kernels& kernels = *supported_kernels().list[i];
    if (kernels.few_products && !with_codes)
      found.push_back(
          {kernels.name + std::string("_few_rows"), kernels.few_products, {at::kFloat, at::kHalf, at::kBFloat16}});
    if (kernels.fp32_products)
      found.push_back({kernels.name, kernels.fp32_products, {at::kFloat, at::kHalf, at::kBFloat16}});
    if (kernels.bf16_products) found.push_back({kernels.name, kernels.bf16_products, {at::kBFloat16}});
  }
  return found;
}

TEST(Kernels, HaveProductsOfTheOperandsThatTheyAreNamedAfter) {
  const auto takes = [](const PackedProducts* products, OperandType operands) {
    return !products || products->operands == operands;
  };
  for (int i = 0; i < supported_kernels().count; ++i) {
    const Kernels& kernels = *supported_kernels().list[i];
    EXPECT_TRUE(takes(kernels.few_products, OperandType::Fp32)) << kernels.name;
    EXPECT_TRUE(takes(kernels.fp32_products, OperandType::Fp32)) << kernels.name;
    EXPECT_TRUE(takes(kernels.bf16_products, OperandType::Bf16)) << kernels.name;
    EXPECT_TRUE(takes(kernels.integer_products, OperandType::Integers)) << kernels.name;
    EXPECT_TRUE(takes(kernels.coded_products[0], OperandType::Fp32)) << kernels.name;
  }
}

class PackedLinear : public testing::TestWithParam<Operands> {
 protected:
  void SetUp() override { at::manual_seed(1); }
  at::Tensor computed(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias = {}) const {
    return packed_linear(x, described(w), bias, *GetParam().products);
  }
  /// Returns x as it enters.
  at::Tensor entering(const at::Tensor& x) const {
    return GetParam().products->operands == OperandType::Bf16 ? x.to(at::kBFloat16) : x;
  }
};
std::string name_of(const testing::TestParamInfo<Operands>& info) {
  return info.param.name + (info.param.products->operands == OperandType::Bf16 ? "_pairs" : "_fp32");
}
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PackedLinear);
INSTANTIATE_TEST_SUITE_P(Operands, PackedLinear, testing::ValuesIn(operands(/*with_codes=*/false)), name_of);

class PackedCodes : public PackedLinear {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PackedCodes);
INSTANTIATE_TEST_SUITE_P(Operands, PackedCodes, testing::ValuesIn(operands(/*with_codes=*/true)), name_of);

TEST_P(PackedLinear, HasTheProductsOfFp64ForEverySizeOfEachOperand) {
  for (at::ScalarType type : GetParam().weights) {
    for (int64_t in : {1, 15, 16, 31, 32, 33, 100, 512, 513, 1024, 1025, 2100}) {
      const at::Tensor w = at::randn({150, in}).to(type), x = at::randn({40, in}), b = at::randn({150}).to(type);
      for (const auto& [rows, out] : {std::pair<int64_t, int64_t>{1, 150},
                                      {2, 1},
                                      {5, 3},
                                      {6, 4},
                                      {7, 65},
                                      {13, 64},
                                      {18, 5},
                                      {25, 150},
                                      {40, 2}}) {
        const at::Tensor given = x.narrow(0, 0, rows), part = w.narrow(0, 0, out),
                         bias = rows % 2 ? b.narrow(0, 0, out) : at::Tensor();
        at::Tensor want = at::mm(entering(given).to(at::kDouble), part.to(at::kDouble).t());
        if (bias.defined()) want = want + bias.to(at::kDouble);
        ASSERT_LT((computed(given, part, bias).to(at::kDouble) - want).abs().max().item<double>(),
                  1e-6 * static_cast<double>(in + 8))
            << c10::toString(type) << " [" << out << ", " << in << "], " << rows << " rows";
      }
    }
  }
}

const CodeLayout layouts[] = {{7, 32},      {33, 32},     {2080, 32},    {4500, 32},   {1100, 64},   {4608, 128},
                              {2500, 2500}, {1500, 2048}, {320, 80},     {2400, 80},   {1500, 100},  {48, 8},
                              {7, 32, 4},   {33, 32, 4},  {2080, 32, 4}, {333, 32, 4}, {4500, 32, 4}};

TEST_P(PackedCodes, HaveTheProductsOfGroupsOfEverySize) {
  for (const CodeLayout& layout : layouts) {
    const QuantizedMatrix whole = quantized(at::randn({45, layout.in}), layout);
    for (const QuantizedMatrix& w : {whole, whole.rows(11, 20)}) {
      for (int64_t rows : {1, 2, 3, 6, 7, 50}) {
        const at::Tensor x = at::randn({rows, layout.in}), weights = entering(dequantized(w)),
                         want = at::mm(entering(x).to(at::kDouble), weights.to(at::kDouble).t());
        ASSERT_LT((packed_linear(x, described(w), {}, *GetParam().products).to(at::kDouble) - want)
                      .abs()
                      .max()
                      .item<double>(),
                  1e-6 * static_cast<double>(layout.in + 8))
            << layout.bits << " bits, " << layout.in << " inputs in groups of " << layout.group << ", " << rows
            << " rows";
      }
    }
  }
}

TEST_P(PackedCodes, RowsHaveTheSameBitsInAnyCompany) {
  for (const CodeLayout& layout : layouts) {
    const QuantizedMatrix w = quantized(at::randn({70, layout.in}), layout);
    const at::Tensor x = at::randn({40, layout.in}), whole = packed_linear(x, described(w), {}, *GetParam().products);
    for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 1}, {39, 1}, {7, 2}, {30, 4}, {3, 25}}) {
      EXPECT_TRUE(at::equal(packed_linear(x.narrow(0, first, count), described(w), {}, *GetParam().products),
                            whole.narrow(0, first, count)))
          << layout.bits << " bits, " << layout.in << " inputs in groups of " << layout.group << ", " << count
          << " rows from " << first;
    }
  }
}

TEST_P(PackedLinear, RowsHaveTheSameBitsInAnyCompanyAndByAnyNumberOfThreads) {
  const at::Tensor w = at::randn({331, 1100}).to(GetParam().weights.back()), x = at::randn({600, 1100});
  const at::Tensor whole = computed(x, w);
  const int before = at::get_num_threads();
  for (const auto& [first, count] :
       {std::pair<int64_t, int64_t>{0, 1}, {5, 6}, {500, 40}, {599, 1}, {7, 2}, {9, 3}, {3, 271}}) {
    at::set_num_threads(count % 2 ? 1 : 3);
    EXPECT_TRUE(at::equal(computed(x.narrow(0, first, count), w), whole.narrow(0, first, count)))
        << count << " rows from " << first;
    EXPECT_TRUE(at::equal(computed(x.narrow(0, first, count), w.narrow(0, 30, 39)),
                          whole.narrow(0, first, count).narrow(1, 30, 39)))
        << count << " rows from " << first << ", some outputs";
  }
  at::set_num_threads(before);
}

TEST_P(PackedLinear, OfNoOutputsOrNoRowsIsEmpty) {
  const at::Tensor w = at::ones({3, 40}).to(GetParam().weights.back());
  EXPECT_EQ(computed(at::ones({18, 40}), w.narrow(0, 0, 0)).sizes(), at::IntArrayRef({18, 0}));
  EXPECT_EQ(computed(at::ones({0, 40}), w).sizes(), at::IntArrayRef({0, 3}));
}

TEST_P(PackedLinear, OfNoInputsIsTheBias) {
  const at::Tensor w = at::ones({5, 0}).to(GetParam().weights.back()), bias = at::arange(5).to(at::kFloat);
  EXPECT_TRUE(at::equal(computed(at::ones({7, 0}), w, bias), bias.expand({7, 5})));
}

TEST_P(PackedLinear, InfinitiesAndNaNsStayInTheirRows) {
  const at::Tensor w = at::ones({20, 40}).to(GetParam().weights.back()), x = at::ones({18, 40});
  x[3][5] = std::numeric_limits<float>::infinity();
  x[4][39] = NAN;
  const at::Tensor y = computed(x, w);
  EXPECT_EQ(y[3][0].item<float>(), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(y[4][19].item<float>()));
  EXPECT_EQ(y[2][0].item<float>(), 40);
  EXPECT_EQ(y[5][7].item<float>(), 40);
}

std::vector<const Kernels*> kernels_with(const PackedProducts* (*products)(const Kernels&)) {
  std::vector<const Kernels*> found;
  for (int i = 0; i < supported_kernels().count; ++i)
    if (products(*supported_kernels().list[i])) found.push_back(supported_kernels().list[i]);
  return found;
}

class IntegerProducts : public testing::TestWithParam<const Kernels*> {
 protected:
  at::Tensor computed(const at::Tensor& x, const QuantizedMatrix& w) const {
    return packed_linear(x, described(w), {}, *GetParam()->integer_products);
  }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(IntegerProducts);
INSTANTIATE_TEST_SUITE_P(Kernels, IntegerProducts, testing::ValuesIn(kernels_with([](const Kernels& kernels) {
                           return kernels.integer_products;
                         })),
                         [](const auto& info) { return std::string(info.param->name); });

QuantizedMatrix with_a_scale_for_each_row(const at::Tensor& w) { return quantized(w, {0, w.size(1), 8, 8}); }

TEST(IntegerLinear, IsTheProductOfRoundedInputsOnEveryBackend) {
  at::manual_seed(2);
  for (int64_t in : {1, 63, 64, 65, 700, 2048, 2049, 5000}) {
    for (int64_t rows : {1, 2, 3, 6, 7, 40}) {
      const at::Tensor x = at::randn({rows, in}) * at::exp(at::randn({rows, 1})), bias = at::randn({37});
      const QuantizedMatrix w = with_a_scale_for_each_row(at::randn({37, in}));
      const at::Tensor want =
          at::mm(rounded_inputs(x).to(at::kDouble), dequantized(w).to(at::kDouble).t()) + bias.to(at::kDouble);
      const double most = 1e-6 * (want.abs().max().item<double>() + 1);
      EXPECT_LT((linear(x, w, bias).to(at::kDouble) - want).abs().max().item<double>(), most) << rows << " x " << in;
      EXPECT_LT((Backend().quantized_linear(x, w, bias, at::kFloat).to(at::kDouble) - want).abs().max().item<double>(),
                2 * most)
          << rows << " x " << in << " by ATen";
    }
  }
}

TEST_P(IntegerProducts, AreExactWhateverTheCompanyAndTheThreads) {
  at::manual_seed(3);
  for (int64_t in : {1, 15, 17, 1023, 1040, 3000}) {
    const at::Tensor x = at::randn({300, in});
    const QuantizedMatrix w = with_a_scale_for_each_row(at::randn({133, in}));
    const at::Tensor whole = computed(x, w), largest = at::amax(at::abs(x), 1, true);
    const at::Tensor integers = at::round(x * (127 / largest)).to(at::kLong);
    const at::Tensor sums = at::mm(integers.to(at::kDouble), w.codes.to(at::kDouble).t());
    EXPECT_TRUE(at::equal(whole, sums.to(at::kFloat) * (largest / 127) * w.scales.to(at::kFloat).view({1, 133})));
    const int before = at::get_num_threads();
    for (const auto& [first, count] :
         {std::pair<int64_t, int64_t>{0, 1}, {299, 1}, {5, 2}, {40, 3}, {100, 6}, {130, 7}, {17, 90}}) {
      at::set_num_threads(count % 2 ? 1 : 3);
      EXPECT_TRUE(at::equal(computed(x.narrow(0, first, count), w), whole.narrow(0, first, count)));
      EXPECT_TRUE(at::equal(computed(x.narrow(0, first, count), w.rows(9, 50)),
                            whole.narrow(0, first, count).narrow(1, 9, 50)));
    }
    at::set_num_threads(before);
  }
}

TEST(IntegerLinear, TheLargestIntegersDoNotOverflow) {
  for (int64_t in : {most_integer_inputs, most_integer_inputs + 1}) {  // the second is computed in fp32
    for (float sign : {1.f, -1.f}) {
      const QuantizedMatrix w = with_a_scale_for_each_row(at::ones({3, in}));
      const at::Tensor y = linear(at::full({2, in}, sign), w, {});
      EXPECT_NEAR(y[1][2].item<double>(), sign * static_cast<double>(in), 0.01 * static_cast<double>(in));
    }
  }
}

TEST(IntegerLinear, RowsOfZerosTinyNumbersAndInfinitiesStayAlone) {
  const at::Tensor x = at::ones({5, 100});
  x[0].zero_();
  x[1].fill_(1e-38f);
  x[2][7] = std::numeric_limits<float>::infinity();
  x[3][99] = NAN;
  for (const at::Tensor& y :
       {linear(x, with_a_scale_for_each_row(at::ones({6, 100})), {}),
        Backend().quantized_linear(x, with_a_scale_for_each_row(at::ones({6, 100})), {}, at::kFloat)}) {
    EXPECT_EQ(y[0][0].item<float>(), 0);
    EXPECT_EQ(y[1][5].item<float>(), 0);
    EXPECT_FALSE(std::isfinite(y[2][0].item<float>()));
    EXPECT_FALSE(std::isfinite(y[3][5].item<float>()));
    EXPECT_NEAR(y[4][0].item<float>(), 100, 0.5);
  }
}

class CodedProducts : public testing::TestWithParam<const Kernels*> {
 protected:
  void SetUp() override { at::manual_seed(4); }
  at::Tensor computed(const at::Tensor& x, const QuantizedMatrix& w) const {
    return packed_linear(x, described(w), {}, *GetParam()->coded_products[w.layout.bits == 4 ? 1 : 0]);
  }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CodedProducts);
INSTANTIATE_TEST_SUITE_P(Kernels, CodedProducts, testing::ValuesIn(kernels_with([](const Kernels& kernels) {
                           return kernels.coded_products[0];
                         })),
                         [](const auto& info) { return std::string(info.param->name); });

const CodeLayout groups_of_32[] = {{1, 32},    {31, 32},    {32, 32},     {100, 32},    {288, 32},    {2080, 32},
                                   {1, 32, 4}, {33, 32, 4}, {288, 32, 4}, {300, 32, 4}, {2080, 32, 4}};

/// Returns x with each group of 32 inputs as integers up to 32639 times a scale.
at::Tensor rounded_groups(const at::Tensor& x) {
  at::Tensor rounded = x.clone();
  for (int64_t first = 0; first < x.size(1); first += 32) {
    at::Tensor group = rounded.narrow(1, first, std::min<int64_t>(32, x.size(1) - first));
    const at::Tensor largest = at::amax(at::abs(group), 1, true);
    group.copy_(at::round(group * (32639 / largest)) * (largest / 32639));
  }
  return rounded;
}

TEST_P(CodedProducts, AreThoseOfInputsRoundedTo16Bits) {
  for (const CodeLayout& layout : groups_of_32) {
    const QuantizedMatrix whole = quantized(at::randn({45, layout.in}), layout, at::kBFloat16);
    for (const QuantizedMatrix& w : {whole, whole.rows(11, 19)}) {
      for (int64_t rows : {1, 2, 3, 4, 7, 12}) {
        const at::Tensor x = at::randn({rows, layout.in}) * at::exp(2 * at::randn({rows, layout.in}));
        const at::Tensor want = at::mm(rounded_groups(x).to(at::kDouble), dequantized(w).to(at::kDouble).t()),
                         magnitude = at::mm(at::abs(x), at::abs(dequantized(w)).t()) + 1e-6;
        EXPECT_LT(((computed(x, w).to(at::kDouble) - want) / magnitude).abs().max().item<double>(), 1e-6)
            << layout.bits << " bits, " << layout.in << " inputs, " << rows << " rows";
      }
    }
  }
}

TEST_P(CodedProducts, HaveTheSameBitsInAnyCompany) {
  for (const CodeLayout& layout : groups_of_32) {
    const QuantizedMatrix w = quantized(at::randn({70, layout.in}), layout, at::kBFloat16);
    const at::Tensor x = at::randn({12, layout.in}), whole = computed(x, w);
    for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 1}, {11, 1}, {7, 2}, {5, 3}, {3, 7}})
      EXPECT_TRUE(at::equal(computed(x.narrow(0, first, count), w), whole.narrow(0, first, count)))
          << layout.bits << " bits, " << layout.in << " inputs, " << count << " rows from " << first;
  }
}

TEST_P(CodedProducts, OfZerosTinyNumbersAndInfinitiesStayInTheirRows) {
  for (int bits : {8, 4}) {
    const QuantizedMatrix w = quantized(at::ones({6, 100}), {100, 32, bits}, at::kBFloat16);
    const at::Tensor x = at::ones({5, 100});
    x[0].zero_();
    x[1].fill_(1e-38f);
    x[2][7] = std::numeric_limits<float>::infinity();
    x[3][99] = NAN;
    const at::Tensor y = computed(x, w);
    EXPECT_EQ(y[0][0].item<float>(), 0);
    EXPECT_EQ(y[1][5].item<float>(), 0);
    EXPECT_FALSE(std::isfinite(y[2][0].item<float>()));
    EXPECT_FALSE(std::isfinite(y[3][5].item<float>()));
    EXPECT_NEAR(y[4][0].item<float>(), 100, 0.5);
  }
}

}  // namespace
}  // namespace pm::ops
