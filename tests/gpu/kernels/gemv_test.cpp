// SPDX-License-Identifier: Apache-2.0
// GEMV with a few rows, compared with sums in fp64.
#include "worker/ops/cuda/gemv.h"
#include "tests/gpu/kernels/device.h"

namespace pm::cuda_test {
namespace {

using Gemvs = Kernels;

struct Case {
  int64_t rows, in, out;
  Element w = Element::F32, x = Element::F32, y = Element::F32;
  bool bias = false;
  int64_t scale_group = 0;
  size_t before = 0;  ///< offset in elements that breaks 16-byte alignment
};

std::vector<float> run(const Case& c) {
  SCOPED_TRACE(std::to_string(c.rows) + " x " + std::to_string(c.in) + " -> " + std::to_string(c.out) + ", w " +
               name(c.w) + ", x " + name(c.x) + ", y " + name(c.y));
  const auto rows = static_cast<size_t>(c.rows), in = static_cast<size_t>(c.in), out = static_cast<size_t>(c.out),
             stride = in + 8;
  const Floats x(numbers(rows * stride, 1), c.x, c.before),
      w(numbers(out * in, 2), c.w == Element::I8 ? Element::F32 : c.w, c.before), bias(numbers(out, 3), Element::BF16);
  std::vector<int8_t> whole(out * in);
  const size_t groups =
      c.scale_group > 0 ? (in + static_cast<size_t>(c.scale_group) - 1) / static_cast<size_t>(c.scale_group) : 1;
  const Floats on_scales(numbers(out * groups, 4), Element::BF16);
  const std::vector<float>& scales = on_scales.values();
  for (size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<int8_t>(static_cast<int>(i * 37 % 255) - 127);
  const Buffer<int8_t> on_whole(whole);
  std::vector<double> expected(rows * out);
  double size = 1;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t o = 0; o < out; ++o) {
      double sum = 0;
      for (size_t i = 0; i < in; ++i) {
        const double weight =
            c.w == Element::I8
                ? whole[o * in + i] * static_cast<double>(scales[o * groups + i / static_cast<size_t>(c.scale_group)])
                : static_cast<double>(w.values()[o * in + i]);
        sum += weight * static_cast<double>(x.values()[r * stride + i]);
      }
      expected[r * out + o] = sum + (c.bias ? static_cast<double>(bias.values()[o]) : 0);
      size = std::max(size, std::abs(expected[r * out + o]));
    }
  }
  std::vector<float> got;
  in_each_order([&] {
    const Floats y(rows * out, c.y);
    ops::cuda::gemv({.x = x.data(),
                     .x_stride = static_cast<int64_t>(stride),
                     .x_type = c.x,
                     .w = c.w == Element::I8 ? static_cast<const void*>(on_whole.data()) : w.data(),
                     .w_type = c.w,
                     .scales = on_scales.data(),
                     .scale_group = c.scale_group,
                     .bias = c.bias ? bias.data() : nullptr,
                     .bias_type = Element::BF16,
                     .y = y.data(),
                     .y_type = c.y,
                     .rows = c.rows,
                     .in = c.in,
                     .out = c.out},
                    nullptr);
    got = y.read();
    EXPECT_LE(largest_error(got, expected), size * (2e-6 + (c.y == Element::F32 ? 0 : unit(c.y))));
  });
  return got;
}

TEST_F(Gemvs, EqualTheSumForEveryPairOfTypes) {
  for (const auto& [w, x] : {std::pair{Element::F32, Element::F32},
                             {Element::F16, Element::F32},
                             {Element::BF16, Element::F32},
                             {Element::F16, Element::F16},
                             {Element::BF16, Element::BF16}}) {
    for (Element y : {Element::F32, x}) run({.rows = 2, .in = 1096, .out = 10, .w = w, .x = x, .y = y, .bias = true});
  }
}
TEST_F(Gemvs, AnyNumberOfRows) {
  for (int64_t rows : {0, 1, 2, 3, 4, 5, 7, 8, 9, 17}) run({.rows = rows, .in = 72, .out = 7, .w = Element::BF16});
}
TEST_F(Gemvs, AnyShape) {
  for (int64_t in : {0, 1, 7, 8, 31, 513}) {
    for (int64_t out : {0, 1, 5}) run({.rows = 3, .in = in, .out = out, .w = Element::F16, .bias = true});
  }
  run({.rows = 1, .in = 4100, .out = 3});
  run({.rows = 3, .in = 64, .out = 6, .w = Element::BF16, .x = Element::BF16, .before = 1});
}
TEST_F(Gemvs, Int8WithAScalePerOutputOrPerGroupOfInputs) {
  for (Element x : {Element::F32, Element::F16, Element::BF16}) {
    run({.rows = 3, .in = 160, .out = 6, .w = Element::I8, .x = x, .scale_group = 160});
    run({.rows = 2, .in = 2080, .out = 5, .w = Element::I8, .x = x, .bias = true, .scale_group = 32});
    run({.rows = 1, .in = 85, .out = 4, .w = Element::I8, .x = x, .scale_group = 100});
    run({.rows = 1, .in = 85, .out = 4, .w = Element::I8, .x = x, .scale_group = 16});
  }
}
TEST_F(Gemvs, ARowsBitsDoNotDependOnTheOthers) {
  const std::vector<float> alone = run({.rows = 1, .in = 1000, .out = 9, .w = Element::BF16}),
                           among = run({.rows = 8, .in = 1000, .out = 9, .w = Element::BF16});
  EXPECT_EQ(alone, std::vector<float>(among.begin(), among.begin() + 9));
}
TEST(GemvRefusals, TypesThatNoKernelTakesAreNamed) {
  EXPECT_THROW(
      ops::cuda::gemv({.x_type = Element::F16, .w_type = Element::BF16, .rows = 1, .in = 8, .out = 1}, nullptr),
      std::invalid_argument);
  EXPECT_THROW(ops::cuda::gemv({.w_type = Element::I8, .scale_group = 8, .rows = 1, .in = 32, .out = 1}, nullptr),
               std::invalid_argument);
}

}  // namespace
}  // namespace pm::cuda_test
