// SPDX-License-Identifier: Apache-2.0
// Widening of quantised rows: every result is the product of number and scale, rounded once.
#include "worker/ops/cuda/linear/widen.h"
#include "tests/gpu/kernels/device.h"

namespace pm::cuda_test {
namespace {

using Widens = Kernels;

struct Case {
  int64_t rows, in, group;
  int64_t gap = 0;  ///< bytes between rows of numbers, and elements between rows of scales, beside their own
  Element out = Element::BF16;
};

void run(const Case& c) {
  SCOPED_TRACE(std::to_string(c.rows) + " x " + std::to_string(c.in) + ", groups of " + std::to_string(c.group) +
               ", to " + name(c.out));
  const auto rows = static_cast<size_t>(c.rows), in = static_cast<size_t>(c.in), group = static_cast<size_t>(c.group),
             groups = (in + group - 1) / group, stride = in + static_cast<size_t>(c.gap),
             scale_stride = groups + static_cast<size_t>(c.gap);
  std::vector<int8_t> whole(rows * stride);
  for (size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<int8_t>(static_cast<int>(i * 37 % 255) - 127);
  const Buffer<int8_t> on_numbers(whole);
  const Floats scales(numbers(rows * scale_stride, 5, 0.01), Element::BF16);
  in_each_order([&] {
    const Floats out(rows * in, c.out);
    ops::cuda::widen({.numbers = on_numbers.data(),
                      .stride = static_cast<int64_t>(stride),
                      .scales = scales.data(),
                      .scale_stride = static_cast<int64_t>(scale_stride),
                      .scale_group = c.group,
                      .out = out.data(),
                      .out_type = c.out,
                      .rows = c.rows,
                      .in = c.in},
                     nullptr);
    const std::vector<float> got = out.read();
    size_t wrong = 0;
    for (size_t row = 0; row < rows; ++row) {
      for (size_t i = 0; i < in; ++i) {
        const float product =
            static_cast<float>(whole[row * stride + i]) * scales.values()[row * scale_stride + i / group];
        wrong += got[row * in + i] != rounded(product, c.out);  // NaN where nothing was written
      }
    }
    EXPECT_EQ(wrong, 0U);
  });
}

TEST_F(Widens, EveryNumberTimesItsScaleRoundedOnce) {
  for (Element out : {Element::F32, Element::F16, Element::BF16}) {
    run({.rows = 9, .in = 1056, .group = 32, .out = out});   // more than a warp loads at once
    run({.rows = 2, .in = 2560, .group = 80, .out = out});   // no power of two
    run({.rows = 5, .in = 200, .group = 4096, .out = out});  // one scale for a row
    run({.rows = 3, .in = 96, .group = 20, .out = out});     // a group ends inside 16 bytes
    run({.rows = 4, .in = 37, .group = 1, .out = out});
  }
}
TEST_F(Widens, RowsMayLieApart) {
  for (Element out : {Element::F32, Element::F16, Element::BF16}) {
    for (int64_t gap : {1, 2, 8, 32}) run({.rows = 3, .in = 96, .group = 32, .gap = gap, .out = out});
  }
}
TEST_F(Widens, NothingIsNoError) {
  run({.rows = 0, .in = 32, .group = 32});
  run({.rows = 3, .in = 0, .group = 32});
}
TEST(WidenRefusals, TypesThatNoKernelTakesAreNamed) {
  EXPECT_THROW(ops::cuda::widen({.numbers_type = Element::F16, .scale_group = 1, .rows = 1, .in = 1}, nullptr),
               std::invalid_argument);
  EXPECT_THROW(ops::cuda::widen({.scale_group = 1, .out_type = Element::I8, .rows = 1, .in = 1}, nullptr),
               std::invalid_argument);
  EXPECT_THROW(ops::cuda::widen({.rows = 1, .in = 1}, nullptr), std::invalid_argument);
}

}  // namespace
}  // namespace pm::cuda_test
