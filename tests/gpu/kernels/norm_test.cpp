// SPDX-License-Identifier: Apache-2.0
// Norms with the residual sum, against their formulas in fp64.
#include "worker/ops/cuda/norm.h"
#include "tests/gpu/kernels/device.h"

namespace pm::cuda_test {
namespace {

using Norms = Kernels;

struct Case {
  bool rms, residual, weight, bias;
  int64_t rows, width, stride;
  double weight_offset;
  Element parameters;
  size_t before;                 ///< elements before the rows, so that they need not be aligned
  size_t before_parameters = 0;  ///< elements before weight and bias
};

/// The types of x, of residual and sum, and of y.
struct Types {
  Element x, sum, y;
};

void run(const Case& c, const Types& types) {
  SCOPED_TRACE(std::string(c.rms ? "rms " : "layer ") + name(types.x) + " + " + name(types.sum) + " to " +
               name(types.y) + ", " + std::to_string(c.rows) + " x " + std::to_string(c.width));
  const auto rows = static_cast<size_t>(c.rows), width = static_cast<size_t>(c.width),
             stride = static_cast<size_t>(c.stride);
  std::vector<float> given = numbers(rows * stride, 1);
  for (float& value : given) value += 3;  // a mean that matters
  const Floats x(given, types.x, c.before), residual(numbers(rows * width, 2), types.sum, c.before),
      weight(numbers(width, 3), c.parameters, c.before_parameters),
      bias(numbers(width, 4), c.parameters, c.before_parameters);
  std::vector<double> sums(rows * width), expected(rows * width);
  for (size_t r = 0; r < rows; ++r) {
    double mean = 0, square = 0;
    for (size_t i = 0; i < width; ++i) {
      double& sum = sums[r * width + i] = x.values()[r * stride + i];
      if (c.residual) sum = rounded(x.values()[r * stride + i] + residual.values()[r * width + i], types.sum);
      mean += sum / static_cast<double>(width);
    }
    if (c.rms) mean = 0;
    for (size_t i = 0; i < width; ++i) square += std::pow(sums[r * width + i] - mean, 2) / static_cast<double>(width);
    for (size_t i = 0; i < width; ++i) {
      double value = (sums[r * width + i] - mean) / std::sqrt(square + 1e-5);
      if (c.weight) value *= c.weight_offset + static_cast<double>(weight.values()[i]);
      if (c.bias) value += bias.values()[i];
      expected[r * width + i] = value;
    }
  }
  in_each_order([&] {
    const Floats y(rows * width, types.y), sum(rows * width, types.sum);
    ops::cuda::norm({.rms = c.rms,
                     .x = x.data(),
                     .x_stride = c.stride,
                     .x_type = types.x,
                     .residual = c.residual ? residual.data() : nullptr,
                     .sum = c.residual ? sum.data() : nullptr,
                     .sum_type = types.sum,
                     .y = y.data(),
                     .y_type = types.y,
                     .weight = c.weight ? weight.data() : nullptr,
                     .bias = c.bias ? bias.data() : nullptr,
                     .parameters = c.parameters,
                     .eps = 1e-5f,
                     .weight_offset = static_cast<float>(c.weight_offset),
                     .rows = c.rows,
                     .width = c.width},
                    nullptr);
    const double rounding = types.y == Element::F32 ? 0 : unit(types.y);
    EXPECT_LE(largest_error(y.read(), expected), 12 * (4e-7 + rounding));
    if (c.residual) {
      EXPECT_EQ(largest_error(sum.read(), sums), 0);
    }
  });
}

void run(const Case& c, Element type) { run(c, Types{type, type, type}); }

TEST_F(Norms, EqualTheFormula) {
  for (Element type : {Element::F32, Element::F16, Element::BF16}) {
    for (bool rms : {true, false}) {
      run({rms, false, true, !rms, 3, 64, 64, 0, Element::F32, 0}, type);
      run({rms, true, true, !rms, 2, 2304, 2304, 0, type, 0}, type);
      run({rms, true, false, true, 2, 67, 70, 0, Element::BF16, 1}, type);
      run({rms, false, true, false, 5, 1, 9, 1, Element::F16, 0}, type);
      run({rms, false, true, true, 2, 4096, 4112, 1, type, 0}, type);
    }
  }
}
TEST_F(Norms, WeightAndBiasMayHaveAnyTypeAndNeedNotBeAligned) {
  for (Element type : {Element::F32, Element::F16, Element::BF16}) {
    for (Element parameters : {Element::F32, Element::F16, Element::BF16}) {
      run({true, false, true, false, 2, 72, 72, 1, parameters, 0}, type);
      run({false, true, true, true, 2, 2056, 2056, 0, parameters, 0}, type);
      run({.rms = false,
           .residual = false,
           .weight = true,
           .bias = true,
           .rows = 2,
           .width = 72,
           .stride = 72,
           .weight_offset = 0,
           .parameters = parameters,
           .before = 0,
           .before_parameters = 1},
          type);
    }
  }
}
TEST_F(Norms, AnFp32SumOverRanksGoesBesideAResidualOf16Bits) {
  for (Element type : {Element::F16, Element::BF16}) {
    for (Element parameters : {Element::F32, type}) {
      for (bool rms : {true, false}) {
        for (Element y : {type, Element::F32}) {
          const Types types{Element::F32, type, y};
          run({rms, true, true, !rms, 2, 2304, 2304, 0, parameters, 0}, types);
          run({rms, true, true, !rms, 2, 72, 80, 1, parameters, 0}, types);
          run({rms, true, true, !rms, 2, 67, 70, 0, parameters, 1}, types);
        }
      }
    }
  }
}
TEST_F(Norms, TypesOfRowsAndOfTheResultMayDiffer) {
  for (Element type : {Element::F16, Element::BF16}) {
    for (const Types& types : {Types{Element::F32, Element::F32, type},
                               {type, type, Element::F32},
                               {type, Element::F32, type},
                               {type, Element::F32, Element::F32}}) {
      for (bool residual : {true, false}) {
        run({true, residual, true, false, 2, 2304, 2304, 0, type, 0}, types);
        run({false, residual, true, true, 2, 72, 72, 0, Element::F32, 0}, types);
        run({false, residual, true, true, 2, 68, 68, 0, type, 0}, types);
      }
    }
  }
}
TEST_F(Norms, SumMayReplaceTheResidual) {
  const Floats x(numbers(40, 1), Element::F32), residual(numbers(40, 2), Element::F32), y(40, Element::F32);
  ops::cuda::norm({.rms = true,
                   .x = x.data(),
                   .x_stride = 40,
                   .residual = residual.data(),
                   .sum = residual.data(),
                   .y = y.data(),
                   .rows = 1,
                   .width = 40},
                  nullptr);
  const std::vector<float> sum = residual.read();
  for (size_t i = 0; i < 40; ++i) EXPECT_EQ(sum[i], x.values()[i] + residual.values()[i]);
}
TEST(NormRefusals, AResidualNeedsAPlaceForTheSum) {
  EXPECT_THROW(ops::cuda::norm({.x = "", .residual = "", .rows = 1, .width = 1}, nullptr), std::invalid_argument);
}

}  // namespace
}  // namespace pm::cuda_test
