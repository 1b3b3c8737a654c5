// SPDX-License-Identifier: Apache-2.0
// Tests decoding of PNG and JPEG files as users send them: valid, rotated, damaged, hostile.
// tests/parity/test_images.py compares with Pillow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/unit/worker/image/files.h"
#include "worker/base/error.h"

namespace pm::test {
namespace {

using image::Image;
using testing::HasSubstr;

/// Opens an image, whose header alone says the same sides.
Image opened(const std::string& file, const image::Limits& limits = {}) {
  Image image = image::open(file, limits);
  const image::Sides sides = image::sides_of(file, limits);
  EXPECT_EQ(sides.width, image.width);
  EXPECT_EQ(sides.height, image.height);
  return image;
}

/// Returns "Reason: message" of the refusal.
std::string refusal(const std::string& file, const image::Limits& limits = {}) {
  try {
    opened(file, limits);
    return "none";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind, ErrorKind::Request);
    return name_of(error.reason) + ": " + error.what();
  }
}

TEST(Images, APngComesBackAsItWas) {
  const Image picture = gradient(37, 21);
  EXPECT_EQ(image::open(png(picture)), picture);
}

TEST(Images, AJpegComesBackNearlyAsItWasPlainOrProgressive) {
  Image picture = gradient(64, 48);
  for (size_t i = 2; i < picture.rgb.size(); i += 3) picture.rgb[i] = 100;  // the checker is what JPEG loses
  for (bool progressive : {false, true}) {
    const Image read = image::open(jpeg(picture, 98, progressive));
    ASSERT_EQ(read.width, 64);
    ASSERT_EQ(read.height, 48);
    for (size_t i = 0; i < read.rgb.size(); ++i) ASSERT_NEAR(read.rgb[i], picture.rgb[i], 8) << i;
  }
}

TEST(Images, EveryExifOrientationStandsUpright) {
  const Image picture = gradient(48, 16);
  const std::string file = jpeg(picture, 100);
  const Image plain = image::open(file);
  const auto at = [](const Image& image, int64_t x, int64_t y) { return image.rgb.data() + (y * image.width + x) * 3; };
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const Image turned = opened(with_orientation(file, orientation));
    const bool swapped = orientation >= 5;
    ASSERT_EQ(turned.width, swapped ? 16 : 48);
    // The displayed position of the stored top left corner: TIFF 6.0, tag 274.
    const bool right = orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
    const bool bottom = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
    const int64_t x = right ? turned.width - 1 : 0, y = bottom ? turned.height - 1 : 0;
    EXPECT_TRUE(std::equal(at(plain, 0, 0), at(plain, 0, 0) + 3, at(turned, x, y))) << orientation;
    const int64_t far_x = turned.width - 1 - x, far_y = turned.height - 1 - y;
    EXPECT_TRUE(std::equal(at(plain, 47, 15), at(plain, 47, 15) + 3, at(turned, far_x, far_y))) << orientation;
  }
  EXPECT_EQ(image::open(with_orientation(file, 9)), plain);
}

TEST(Images, OtherFormatsAreRefusedByWord) {
  for (const std::string file : {"", "GIF89a", "RIFF....WAVE", "\x89PNG", "hello"})
    EXPECT_THAT(refusal(file), HasSubstr("neither PNG nor JPEG nor WebP"));
}

TEST(Images, EveryPrefixOfAFileIsRefusedAndNothingWorse) {
  for (const std::string& file : {png(gradient(19, 11)), jpeg(gradient(19, 11)), jpeg(gradient(19, 11), 90, true)})
    for (size_t n = 0; n + 12 < file.size(); n += 3)
      EXPECT_THAT(refusal(file.substr(0, n)), HasSubstr("ImageRefused")) << n << " of " << file.size();
}

TEST(Images, FlippedBitsNeverDoHarm) {
  std::srand(7);
  for (const std::string& file :
       {png(gradient(40, 30)), jpeg(gradient(40, 30)), with_orientation(jpeg(gradient(40, 30), 90, true), 6)}) {
    for (int round = 0; round < 500; ++round) {
      std::string broken = file;
      for (int i = 0; i < 3; ++i)
        broken[static_cast<size_t>(std::rand()) % broken.size()] ^= static_cast<char>(1 << std::rand() % 8);
      refusal(broken, {.pixels = 1 << 20});
    }
  }
}

TEST(Images, ABombIsRefusedByItsHeaderWithTheNumbers) {
  EXPECT_THAT(refusal(png_header(60000, 60000)),
              testing::AllOf(HasSubstr("ImageTooLarge"), HasSubstr("60000 x 60000"), HasSubstr("40000000")));
  EXPECT_THAT(refusal(png(gradient(20, 20)), {.pixels = 399}), HasSubstr("ImageTooLarge"));
  EXPECT_EQ(refusal(png(gradient(20, 20)), {.pixels = 400}), "none");
  EXPECT_THAT(refusal(jpeg(gradient(20, 20)), {.pixels = 399}), HasSubstr("ImageTooLarge"));
  EXPECT_THROW(image::sides_of(png_header(60000, 60000)), Error);
  EXPECT_THROW(image::sides_of(jpeg(gradient(20, 20)), {.pixels = 399}), Error);
  EXPECT_THROW(image::sides_of("hello"), Error);
}

TEST(Images, AJpegOfTooManyScansIsRefused) {
  const std::string file = jpeg(gradient(32, 32), 90, true);
  EXPECT_THAT(refusal(file, {.scans = 2}), HasSubstr("more than 2 scans"));
  EXPECT_EQ(refusal(file), "none");
}

}  // namespace
}  // namespace pm::test
