// SPDX-License-Identifier: Apache-2.0
// GEMV with a few rows, compared with sums in fp64 of the same numbers: x and quantised weights are rounded to the type
// of the products first.
#include "worker/ops/cuda/linear/gemv.h"

#include <tuple>
#include <utility>

#include "tests/gpu/kernels/device.h"

namespace pm::cuda_test {
namespace {

using Gemvs = Kernels;

struct Case {
  int64_t rows, in, out;
  Element w = Element::F32, x = Element::F32, y = Element::F32;
  bool bias = false;
  int64_t scale_group = 0;
  Element compute = Element::F32;  ///< int8 only
  size_t before = 0;               ///< offset in elements that breaks 16-byte alignment
  int multiprocessors = 132;
  int64_t gap = 0;  ///< elements between rows of w, and of scales, beside their own
};

/// Elements of a matrix whose rows lie apart by `gap` more.
template <typename T>
std::vector<T> with_gaps(const std::vector<T>& values, size_t rows, size_t gap) {
  const size_t width = rows > 0 ? values.size() / rows : 0;
  std::vector<T> spread;
  for (size_t row = 0; row < rows; ++row) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(row * width);
    spread.insert(spread.end(), begin, begin + static_cast<std::ptrdiff_t>(width));
    spread.insert(spread.end(), gap, T(77));
  }
  return spread;
}

std::vector<float> run(const Case& c) {
  SCOPED_TRACE(std::to_string(c.rows) + " x " + std::to_string(c.in) + " -> " + std::to_string(c.out) + ", w " +
               name(c.w) + ", x " + name(c.x) + ", y " + name(c.y) + ", products " + name(c.compute) + ", " +
               std::to_string(c.multiprocessors) + " multiprocessors");
  const auto rows = static_cast<size_t>(c.rows), in = static_cast<size_t>(c.in), out = static_cast<size_t>(c.out),
             stride = in + 8, gap = static_cast<size_t>(c.gap);
  const bool int8 = c.w == Element::I8;
  const Element product = int8 ? c.compute : c.w;
  const std::vector<float> weights = numbers(out * in, 2);
  const Floats x(numbers(rows * stride, 1), c.x, c.before),
      w(with_gaps(weights, out, gap), int8 ? Element::F32 : c.w, c.before), bias(numbers(out, 3), Element::BF16);
  std::vector<int8_t> whole(out * in);
  const size_t groups =
      c.scale_group > 0 ? (in + static_cast<size_t>(c.scale_group) - 1) / static_cast<size_t>(c.scale_group) : 1;
  const std::vector<float> scales = numbers(out * groups, 4);
  const Floats on_scales(with_gaps(scales, out, gap), Element::BF16);
  for (size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<int8_t>(static_cast<int>(i * 37 % 255) - 127);
  const Buffer<int8_t> on_whole(with_gaps(whole, out, gap));
  std::vector<double> expected(rows * out);
  double size = 1;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t o = 0; o < out; ++o) {
      double sum = 0;
      for (size_t i = 0; i < in; ++i) {
        const float scaled =
            int8 ? static_cast<float>(whole[o * in + i]) *
                       rounded(scales[o * groups + i / static_cast<size_t>(c.scale_group)], Element::BF16)
                 : weights[o * in + i];
        sum += static_cast<double>(rounded(scaled, product)) *
               static_cast<double>(rounded(x.values()[r * stride + i], product));
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
                     .w = int8 ? static_cast<const void*>(on_whole.data()) : w.data(),
                     .w_stride = c.gap > 0 ? c.in + c.gap : 0,
                     .w_type = c.w,
                     .scales = on_scales.data(),
                     .scale_stride = c.gap > 0 ? static_cast<int64_t>(groups) + c.gap : 0,
                     .scale_group = c.scale_group,
                     .compute = c.compute,
                     .bias = c.bias ? bias.data() : nullptr,
                     .bias_type = Element::BF16,
                     .y = y.data(),
                     .y_type = c.y,
                     .rows = c.rows,
                     .in = c.in,
                     .out = c.out,
                     .multiprocessors = c.multiprocessors},
                    nullptr);
    const std::vector<float> before = std::exchange(got, y.read());
    const double of_sums = product == Element::F32 ? 2e-6 : 2e-5;  // tensor cores truncate where fp32 additions round
    EXPECT_LE(largest_error(got, expected), size * (of_sums + (c.y == Element::F32 ? 0 : unit(c.y))));
    if (!before.empty()) {
      EXPECT_EQ(got, before) << "the order of threads changes bits";
    }
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
  for (int64_t rows : {0, 1, 2, 3, 4, 5, 7, 8, 9, 17}) {
    run({.rows = rows, .in = 72, .out = 7, .w = Element::BF16});
    run({.rows = rows, .in = 72, .out = 7});
    run({.rows = rows, .in = 80, .out = 7, .w = Element::I8, .scale_group = 32, .compute = Element::F16});
    run({.rows = rows, .in = 71, .out = 7, .w = Element::F16});
  }
}
TEST_F(Gemvs, AnyShape) {
  for (int64_t in : {0, 1, 7, 8, 31, 513}) {
    for (int64_t out : {0, 1, 5}) run({.rows = 3, .in = in, .out = out, .w = Element::F16, .bias = true});
  }
  for (int64_t out : {8, 9, 16, 17, 40})
    run({.rows = 4, .in = 264, .out = out, .w = Element::F16, .bias = true, .multiprocessors = 1});
  run({.rows = 1, .in = 4100, .out = 3});
  run({.rows = 3, .in = 64, .out = 6, .w = Element::BF16, .x = Element::BF16, .before = 1});
}
TEST_F(Gemvs, InputsAreSplitAmongAsManyWarpsAsTheDeviceHasRoomFor) {
  for (int multiprocessors : {1, 4, 132}) {  // 4 to 16 warps, one tile of outputs or two
    for (Element w : {Element::F32, Element::BF16, Element::I8})
      run({.rows = 3,
           .in = 2064,
           .out = 34,
           .w = w,
           .bias = true,
           .scale_group = 48,
           .compute = Element::BF16,
           .multiprocessors = multiprocessors});
  }
}
TEST_F(Gemvs, Int8WithAScalePerOutputOrPerGroupOfInputs) {
  for (Element compute : {Element::F32, Element::F16, Element::BF16}) {
    for (Element x : {Element::F32, compute}) {
      const Case any{.rows = 3, .in = 160, .out = 6, .w = Element::I8, .x = x, .compute = compute};
      for (const auto& [rows, in, group] : {std::tuple<int64_t, int64_t, int64_t>{3, 160, 160},
                                            {2, 2080, 32},
                                            {4, 960, 80},
                                            {1, 85, 100},
                                            {1, 85, 16}}) {
        Case one = any;
        one.rows = rows, one.in = in, one.scale_group = group, one.bias = group == 32;
        run(one);
      }
    }
  }
}
TEST_F(Gemvs, RowsOfWeightsMayLieApart) {
  for (Element compute : {Element::F32, Element::F16, Element::BF16}) {
    for (int64_t gap : {1, 16})
      run({.rows = 3, .in = 96, .out = 9, .w = Element::I8, .scale_group = 32, .compute = compute, .gap = gap});
  }
  for (int64_t gap : {1, 8}) run({.rows = 2, .in = 96, .out = 9, .w = Element::BF16, .gap = gap});
}
TEST_F(Gemvs, EveryInt8NumberIsExactInEveryType) {
  constexpr size_t in = 256;
  std::vector<int8_t> all(in * in, 0);  // row o has number o - 128 at input o
  for (size_t o = 0; o < in; ++o) all[o * in + o] = static_cast<int8_t>(static_cast<int>(o) - 128);
  const Buffer<int8_t> w(all);
  const Floats x(std::vector<float>(in, 1), Element::F32), scales(std::vector<float>(in, 0.5f), Element::BF16);
  for (Element compute : {Element::F32, Element::F16, Element::BF16}) {
    const Floats y(in, Element::F32);
    ops::cuda::gemv({.x = x.data(),
                     .x_stride = in,
                     .w = w.data(),
                     .w_type = Element::I8,
                     .scales = scales.data(),
                     .scale_group = in,
                     .compute = compute,
                     .y = y.data(),
                     .rows = 1,
                     .in = in,
                     .out = in},
                    nullptr);
    const std::vector<float> got = y.read();
    for (size_t o = 0; o < in; ++o)
      EXPECT_EQ(got[o], 0.5f * (static_cast<float>(o) - 128)) << name(compute) << " " << o;
  }
}
TEST_F(Gemvs, ARowsBitsDoNotDependOnTheOthers) {
  for (Element w : {Element::F32, Element::BF16, Element::I8}) {
    const Case any{
        .rows = 1, .in = 1008, .out = 9, .w = w, .scale_group = 32, .compute = Element::BF16, .multiprocessors = 4};
    const std::vector<float> alone = run(any);
    for (int64_t rows = 2; rows <= 9; ++rows) {
      Case more = any;
      more.rows = rows;
      const std::vector<float> among = run(more);
      EXPECT_EQ(alone, std::vector<float>(among.begin(), among.begin() + 9)) << rows << " rows, " << name(w);
    }
  }
}
TEST_F(Gemvs, AMatrixWithoutOutputsNeedsNoAddress) {  // of a rank that has none of a layer's columns
  const Buffer<float> x(std::vector<float>(20, 1));
  for (const Element w : {Element::BF16, Element::I8}) {
    EXPECT_NO_THROW(ops::cuda::gemv({.x = x.data(),
                                     .x_stride = 20,
                                     .w_type = w,
                                     .scale_group = 32,
                                     .compute = Element::BF16,
                                     .rows = 1,
                                     .in = 20,
                                     .out = 0},
                                    nullptr));
  }
}
TEST(GemvRefusals, TypesThatNoKernelTakesAreNamed) {
  EXPECT_THROW(
      ops::cuda::gemv({.x_type = Element::F16, .w_type = Element::BF16, .rows = 1, .in = 8, .out = 1}, nullptr),
      std::invalid_argument);
  EXPECT_THROW(ops::cuda::gemv({.x_type = Element::F16, .rows = 1, .in = 8, .out = 1}, nullptr), std::invalid_argument);
  EXPECT_THROW(ops::cuda::gemv({.w_type = Element::I8, .scale_group = 8, .rows = 1, .in = 32, .out = 1}, nullptr),
               std::invalid_argument);
}

}  // namespace
}  // namespace pm::cuda_test
