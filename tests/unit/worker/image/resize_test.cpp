// SPDX-License-Identifier: Apache-2.0
// Tests image resizing on cases with known results. tests/parity/test_images.py compares with Pillow.
#include <gtest/gtest.h>

#include "tests/unit/worker/image/files.h"
#include "worker/image/resize.h"

namespace pm::test {
namespace {

using image::Filter;
using image::Image;

constexpr Filter all_filters[] = {Filter::Nearest, Filter::Lanczos, Filter::Bilinear,
                                  Filter::Bicubic, Filter::Box,     Filter::Hamming};

TEST(Resize, TheSameSizeIsTheSameImage) {
  const Image picture = gradient(13, 9);
  for (Filter filter : all_filters) EXPECT_EQ(resize(picture, 13, 9, filter), picture);
}

TEST(Resize, OneColourStaysOneColour) {
  const Image gray{11, 7, std::vector<uint8_t>(11 * 7 * 3, 137)};
  for (Filter filter : all_filters)
    for (int64_t side : {1, 3, 24})
      EXPECT_EQ(resize(gray, side, side + 1, filter).rgb,
                std::vector<uint8_t>(static_cast<size_t>(side * (side + 1) * 3), 137));
}

TEST(Resize, BoxAveragesWholeCells) {
  const Image two{2, 1, {10, 20, 30, 20, 40, 61}};
  EXPECT_EQ(resize(two, 1, 1, Filter::Box).rgb, (std::vector<uint8_t>{15, 30, 46}));
}

TEST(Resize, NearestRepeatsOrDropsPixels) {
  const Image row{3, 1, {1, 1, 1, 2, 2, 2, 3, 3, 3}};
  const Image twice = resize(row, 6, 1, Filter::Nearest);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(twice.rgb[3 * i], i / 2 + 1);
  EXPECT_EQ(resize(row, 1, 1, Filter::Nearest).rgb[0], 2);
}

}  // namespace
}  // namespace pm::test
