// SPDX-License-Identifier: Apache-2.0
// Tests Qwen2-VL's patches: what preprocessor_config.json says of them, sizes, layout, refusals.
// tests/parity/test_images.py compares with transformers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <stdexcept>

#include "tests/unit/worker/image/files.h"
#include "worker/base/error.h"
#include "worker/image/processor.h"

namespace pm::test {
namespace {

using image::Image;
using image::PatchLayout;
using image::Processor;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

/// Reads a preprocessor_config.json of the class with these keys more.
Processor read(const std::string& keys, const std::string& type = "Qwen2VLImageProcessor") {
  std::string folder = (std::filesystem::temp_directory_path() / "patches-XXXXXX").string();
  if (!mkdtemp(folder.data())) throw std::runtime_error("no folder");
  std::ofstream(std::filesystem::path(folder) / "preprocessor_config.json")
      << "{\"image_processor_type\": \"" << type << "\"" << (keys.empty() ? "" : ", ") << keys << "}";
  try {
    const auto processor = Processor::read(folder);
    std::filesystem::remove_all(folder);
    return processor.value();
  } catch (...) {
    std::filesystem::remove_all(folder);
    throw;
  }
}

template <class Do>
std::string refusal(Reason reason, Do&& act) {
  try {
    act();
    return "none";
  } catch (const Error& error) {
    EXPECT_EQ(error.reason, reason);
    return error.what();
  }
}

std::string unread(const std::string& keys) {
  return refusal(Reason::ModelUnreadable, [&] { read(keys); });
}

Processor with(const PatchLayout& layout) {
  Processor p;
  p.patches = layout;
  return p;
}

TEST(ImagePatches, TheClassHasTransformersDefaults) {
  for (const char* type : {"Qwen2VLImageProcessor", "Qwen2VLImageProcessorFast", "Qwen2VLImageProcessorPil"}) {
    const auto p = read("", type);
    ASSERT_TRUE(p.patches);
    EXPECT_EQ(p.patches->patch, 14);
    EXPECT_EQ(p.patches->merge, 2);
    EXPECT_EQ(p.patches->frames, 2);
    EXPECT_EQ(p.patches->min_pixels, 3136);
    EXPECT_EQ(p.patches->max_pixels, 1003520);
    EXPECT_EQ(p.resample, image::Filter::Bicubic);
    EXPECT_THAT(p.mean, ElementsAre(0.48145466, 0.4578275, 0.40821073));
    EXPECT_THAT(p.std, ElementsAre(0.26862954, 0.26130258, 0.27577711));
    EXPECT_TRUE(p.do_resize && p.do_rescale && p.do_normalize && !p.do_center_crop);
  }
}

TEST(ImagePatches, OlderFilesNamePixelsAndNewerOnesEdges) {
  const char* older = R"("min_pixels": 400, "max_pixels": 90000, "patch_size": 16, "merge_size": 3,
                         "temporal_patch_size": 1, "do_convert_rgb": true, "resample": 2)";
  const char* newer = R"("size": {"longest_edge": 90000, "shortest_edge": 400}, "patch_size": 16, "merge_size": 3,
                         "temporal_patch_size": 1, "min_pixels": null, "crop_size": null, "resample": 2)";
  for (const char* keys : {older, newer}) {
    const auto p = read(keys);
    EXPECT_EQ(p.patches->patch, 16);
    EXPECT_EQ(p.patches->merge, 3);
    EXPECT_EQ(p.patches->frames, 1);
    EXPECT_EQ(p.patches->min_pixels, 400);
    EXPECT_EQ(p.patches->max_pixels, 90000);
    EXPECT_EQ(p.resample, image::Filter::Bilinear);
  }
}

TEST(ImagePatches, PixelsGoBeforeEdges) {
  const auto bounds = [](const std::string& keys) {
    const auto p = read(keys);
    return std::pair(p.patches->min_pixels, p.patches->max_pixels);
  };
  EXPECT_THAT(bounds(R"("min_pixels": 7)"), Pair(7, 1003520));
  EXPECT_THAT(bounds(R"("size": null, "max_pixels": 5000)"), Pair(3136, 5000));
  EXPECT_THAT(bounds(R"("size": {"shortest_edge": 5, "longest_edge": 6}, "min_pixels": 7)"), Pair(7, 6));
  EXPECT_THAT(bounds(R"("size": {"shortest_edge": 5}, "max_pixels": 8)"), Pair(5, 8));
  EXPECT_THAT(bounds(R"("size": {"min_pixels": 1, "max_pixels": 2}, "min_pixels": 7, "max_pixels": 8)"), Pair(7, 8));
}

TEST(ImagePatches, WhatTheClassDoesNotReadIsIgnored) {
  const auto p = read(R"("do_center_crop": true, "crop_size": {"height": 9, "width": 9}, "do_pad": true)");
  EXPECT_FALSE(p.do_center_crop);
}

TEST(ImagePatches, WhatIsNotServedIsRefusedByName) {
  EXPECT_THAT(unread(R"("size": {"height": 9, "width": 9})"),
              AllOf(HasSubstr("preprocessor_config.json: size is {\"height\":9"), HasSubstr("shortest_edge")));
  EXPECT_THAT(unread(R"("size": {"shortest_edge": 9})"), HasSubstr("size is {\"shortest_edge\":9}"));
  EXPECT_THAT(unread(R"("size": {"min_pixels": 9, "max_pixels": 99})"), HasSubstr("size is {\"max_pixels\":99"));
  EXPECT_THAT(unread(R"("size": 900, "min_pixels": 7, "max_pixels": 8)"), HasSubstr("size is 900"));
  EXPECT_THAT(unread(R"("size": {"shortest_edge": 0, "longest_edge": 99})"), HasSubstr("size.shortest_edge is 0"));
  EXPECT_THAT(unread(R"("size": {"shortest_edge": 1, "longest_edge": null})"), HasSubstr("size.longest_edge is null"));
  EXPECT_THAT(unread(R"("min_pixels": 0)"), HasSubstr("min_pixels is 0 instead of a number of pixels from 1 to"));
  EXPECT_THAT(unread(R"("max_pixels": 9.5)"), HasSubstr("max_pixels is 9.5"));
  EXPECT_THAT(unread(R"("patch_size": "14")"), HasSubstr("patch_size is \"14\" instead of a whole number from 1 to"));
  EXPECT_THAT(unread(R"("merge_size": 0)"), HasSubstr("merge_size is 0"));
  EXPECT_THAT(unread(R"("temporal_patch_size": 18446744073709551615)"), HasSubstr("temporal_patch_size is 184"));
  EXPECT_THAT(unread(R"("do_resize": 1)"), HasSubstr("do_resize is 1"));
}

/// A size and the rows and columns of patches that transformers' smart_resize gives it.
struct Case {
  int64_t width, height, down, across;
};

TEST(ImagePatches, GridsAreThoseOfTransformers) {
  const auto expect = [](const PatchLayout& layout, const std::vector<Case>& cases) {
    const auto p = with(layout);
    for (const auto& [width, height, down, across] : cases)
      EXPECT_THAT(p.patch_grid(width, height), Pair(down, across)) << width << " x " << height;
  };
  expect({}, {{1, 1, 4, 4},
              {28, 28, 4, 4},
              {1, 200, 58, 2},
              {200, 1, 2, 58},
              {42, 70, 4, 4},  // 1.5 and 2.5 squares: both to the even 2
              {14, 56, 8, 2},
              {98, 98, 8, 8},  // 3.5 squares: to 4
              {640, 427, 30, 46},
              {1000, 1003, 70, 70},
              {4000, 3000, 60, 82},
              {6000, 31, 2, 428},  // a strip keeps a square
              {20, 3000, 214, 2}});
  expect({16, 2, 2, 65536, 16777216}, {{255, 256, 16, 16},
                                       {16, 1000, 128, 4},
                                       {80, 112, 20, 14},
                                       {1920, 1080, 68, 120},
                                       {4096, 4096, 256, 256},
                                       {8000, 5000, 202, 322}});
  expect({14, 2, 2, 3136, 12845056}, {{3584, 3584, 256, 256}, {40, 8000, 572, 2}});
  expect({14, 1, 2, 1, 400}, {{3, 3, 1, 1}, {21, 21, 1, 1}, {100, 9, 1, 4}, {5000, 30, 1, 18}});
}

TEST(ImagePatches, SquaresOfPatchesFollowEachOther) {
  // 8 x 4 pixels whose red is ten times the row plus the column, as patches of 2 x 2 in squares of 2 x 2: two squares
  // beside each other. Green and blue add 100 and 200.
  Image image{8, 4, {}};
  for (uint8_t y = 0; y < 4; ++y)
    for (uint8_t x = 0; x < 8; ++x)
      for (uint8_t c = 0; c < 3; ++c) image.rgb.push_back(static_cast<uint8_t>(100 * c + 10 * y + x));
  auto p = with({.patch = 2, .merge = 2, .frames = 2, .min_pixels = 1, .max_pixels = 32});
  p.do_rescale = p.do_normalize = false;
  for (const bool resizes : {true, false}) {
    p.do_resize = resizes;
    const auto patched = p.patched(image);
    EXPECT_EQ(patched.down, 2);
    EXPECT_EQ(patched.across, 4);
    EXPECT_EQ(patched.patches.shape, (std::vector<int64_t>{8, 3 * 2 * 2 * 2}));
    std::vector<float> expected;
    for (const float corner : {0, 2, 20, 22, 4, 6, 24, 26})  // the first pixel of each patch
      for (const float channel : {0, 100, 200})
        for ([[maybe_unused]] const int frame : {0, 1})  // alike
          for (const float pixel : {0, 1, 10, 11}) expected.push_back(corner + channel + pixel);
    EXPECT_EQ(std::get<std::vector<float>>(patched.patches.values), expected);
  }
}

TEST(ImagePatches, ValuesAreRescaledAndNormalised) {
  auto p = read(R"("patch_size": 1, "merge_size": 1, "temporal_patch_size": 1, "min_pixels": 1)");
  const auto patched = p.patched({1, 1, {255, 0, 51}});
  const auto& values = std::get<std::vector<float>>(patched.patches.values);
  ASSERT_EQ(values.size(), 3u);
  EXPECT_FLOAT_EQ(values[0], (1 - 0.48145466f) / 0.26862954f);
  EXPECT_FLOAT_EQ(values[1], (0 - 0.4578275f) / 0.26130258f);
  EXPECT_FLOAT_EQ(values[2], (0.2f - 0.40821073f) / 0.27577711f);
}

TEST(ImagePatches, AnImageIsResizedToItsGrid) {
  const auto p = read("");
  const auto patched = p.patched(gradient(100, 60));
  EXPECT_THAT(p.patch_grid(100, 60), Pair(patched.down, patched.across));
  EXPECT_EQ(patched.down, 4);
  EXPECT_EQ(patched.across, 8);
  EXPECT_EQ(patched.patches.shape, (std::vector<int64_t>{32, 1176}));
}

TEST(ImagePatches, AStripIsRefused) {
  const auto p = read("");
  EXPECT_THAT(refusal(Reason::ImageRefused, [&] { p.patch_grid(3, 601); }),
              AllOf(HasSubstr("3 x 601 pixels"), HasSubstr("200")));
  EXPECT_NE(refusal(Reason::ImageRefused, [&] { p.patched({201, 1, std::vector<uint8_t>(603)}); }), "none");
  EXPECT_NE(refusal(Reason::ImageRefused, [&] { p.patch_grid(0, 5); }), "none");
  EXPECT_THAT(p.patch_grid(3, 600), Pair(58, 2));
}

TEST(ImagePatches, WithoutResizeTheSidesAreMultiplesOfASquare) {
  const auto p = read(R"("do_resize": false)");
  EXPECT_THAT(p.patch_grid(56, 84), Pair(6, 4));
  EXPECT_THAT(p.patch_grid(28 * 201, 28), Pair(2, 402));  // transformers has no bound there
  EXPECT_THAT(refusal(Reason::ImageRefused, [&] { p.patched(gradient(56, 70)); }),
              AllOf(HasSubstr("56 x 70 pixels"), HasSubstr("multiples of 28")));
}

TEST(ImagePatches, AnImageBecomesNoLargerThanTheLimit) {
  const auto p = read(R"("min_pixels": 1000000000, "max_pixels": 1000000000)");
  EXPECT_THAT(refusal(Reason::ImageTooLarge, [&] { p.patched(gradient(9, 9)); }), HasSubstr("the resized image has"));
  EXPECT_NE(refusal(Reason::ImageTooLarge, [&] { read("").patched(gradient(56, 56), {.pixels = 3135}); }), "none");
  EXPECT_EQ(read("").patched(gradient(56, 56), {.pixels = 3136}).down, 4);
}

TEST(ImagePatches, AProcessorGivesEitherImagesOrPatches) {
  const auto p = read("");
  EXPECT_THROW(p(gradient(56, 56)), std::logic_error);
  EXPECT_THROW(p.resize_and_crop(gradient(56, 56)), std::logic_error);
  EXPECT_THROW(Processor().patched(gradient(56, 56)), std::logic_error);
  EXPECT_THROW(Processor().patch_grid(56, 56), std::logic_error);
}

TEST(WholeImages, SidesBecomeMultiplesOfASquareOfTheModelWithinTheSizeOfTheFile) {
  Processor processor = read("\"size\": {\"longest_edge\": 100}, \"patch_size\": 9", "PixtralImageProcessorFast");
  processor.patches->patch = 4;
  processor.patches->merge = 2;
  EXPECT_THAT(processor.patch_grid(33, 9), Pair(4, 10)) << "rounded up to squares of 8 pixels";
  EXPECT_THAT(processor.patch_grid(8, 8), Pair(2, 2));
  EXPECT_THAT(processor.patch_grid(200, 100), Pair(14, 26)) << "shrunk to 100 x 50 before that";
  const Array pixels = processor(gradient(33, 9));
  EXPECT_THAT(pixels.shape, ElementsAre(1, 3, 16, 40));
  EXPECT_THROW(processor.patched(gradient(33, 9)), std::logic_error);
}

TEST(WholeImages, WhatCannotBeShrunkOrIsNoMultipleWithoutResizeIsRefused) {
  Processor processor = read("\"size\": {\"height\": 50, \"width\": 100}", "PixtralImageProcessor");
  processor.patches->merge = 1;
  EXPECT_THAT(refusal(Reason::ImageRefused, [&] { processor.patch_grid(1000, 1); }), HasSubstr("too thin"));
  Processor fixed = read("\"do_resize\": false", "PixtralImageProcessor");
  EXPECT_THAT(refusal(Reason::ImageRefused, [&] { fixed.patch_grid(30, 28); }), HasSubstr("multiples of 28"));
  for (const char* keys : {"\"size\": 100", "\"size\": {\"shortest_edge\": 100}", "\"do_center_crop\": true",
                           "\"size\": {\"longest_edge\": 0}"})
    EXPECT_NE(refusal(Reason::ModelUnreadable, [&] { read(keys, "PixtralImageProcessor"); }), "none") << keys;
}

}  // namespace
}  // namespace pm::test
