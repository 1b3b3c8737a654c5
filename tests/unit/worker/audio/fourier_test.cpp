// SPDX-License-Identifier: Apache-2.0
#include "worker/audio/fourier.h"

#include <gtest/gtest.h>

#include <numbers>
#include <stdexcept>

namespace pm::test {
namespace {

using audio::FourierTransform;

TEST(FourierTransform, IsTheSumOfItsDefinitionForAllFactors) {
  for (const size_t points : {1U, 2U, 3U, 4U, 7U, 12U, 25U, 60U, 97U, 400U}) {
    std::vector<FourierTransform::Complex> in, out(points);
    for (size_t i = 0; i < points; ++i) in.emplace_back(static_cast<double>(i * i % 11), static_cast<double>(i % 3));
    FourierTransform transform(points);
    transform(in, out);
    for (size_t j = 0; j < points; ++j) {
      FourierTransform::Complex sum = 0;
      for (size_t i = 0; i < points; ++i)
        sum += in[i] * std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(i * j % points) /
                                           static_cast<double>(points));
      EXPECT_NEAR(std::abs(out[j] - sum), 0, 1e-9 * static_cast<double>(points)) << j << " of " << points;
    }
  }
}

TEST(FourierTransform, RefusesOtherSizes) {
  EXPECT_THROW(FourierTransform(0), std::invalid_argument);
  EXPECT_THROW(FourierTransform(65'537), std::invalid_argument);
  std::vector<FourierTransform::Complex> eight(8), four(4);
  EXPECT_THROW(FourierTransform(8)(eight, four), std::invalid_argument);
}

}  // namespace
}  // namespace pm::test
