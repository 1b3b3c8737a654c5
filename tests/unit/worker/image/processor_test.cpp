// SPDX-License-Identifier: Apache-2.0
// Tests the spellings of preprocessor_config.json. tests/parity/test_images.py compares with transformers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "tests/unit/worker/image/files.h"
#include "worker/base/error.h"
#include "worker/image/processor.h"

namespace pm::test {
namespace {

using image::Processor;
using testing::HasSubstr;

struct Folder {
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "processor-XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

std::optional<Processor> read(const std::string& text, const char* name = "preprocessor_config.json") {
  Folder folder;
  std::ofstream(folder.path / name) << text;
  return Processor::read(folder.path);
}

std::string refusal(const std::string& text) {
  try {
    read(text);
    return "none";
  } catch (const Error& error) {
    EXPECT_EQ(error.reason, Reason::ModelUnreadable);
    return error.what();
  }
}

TEST(ImageProcessor, AFolderWithoutOneHasNone) {
  Folder folder;
  EXPECT_FALSE(Processor::read(folder.path));
  EXPECT_FALSE(read(R"({"processor_class": "CLIPProcessor"})", "processor_config.json"));
}

TEST(ImageProcessor, OlderAndNewerSpellingsMeanTheSame) {
  const auto older =
      read(R"({"feature_extractor_type": "CLIPFeatureExtractor", "size": 32, "crop_size": 24, "resample": 3})");
  const auto newer = read(
      R"({"image_processor_type": "CLIPImageProcessorFast", "size": {"shortest_edge": 32}, "crop_size": {"height": 24, "width": 24}})");
  const auto inside =
      read(R"({"image_processor": {"image_processor_type": "CLIPImageProcessor", "size": 32, "crop_size": 24}})",
           "processor_config.json");
  for (const auto& p : {older, newer, inside}) {
    ASSERT_TRUE(p);
    EXPECT_EQ(p->shortest_edge, 32);
    EXPECT_EQ(p->crop_width, 24);
    EXPECT_TRUE(p->do_center_crop);
    EXPECT_EQ(p->resample, image::Filter::Bicubic);
    EXPECT_DOUBLE_EQ(p->mean[0], 0.48145466);
  }
  const auto vit = read(
      R"({"image_processor_type": "ViTImageProcessor", "size": 20, "do_convert_rgb": null, "image_mean": [0.1, 0.2, 0.3]})");
  EXPECT_EQ(vit->shortest_edge, 0);
  EXPECT_EQ(vit->width, 20);
  EXPECT_FALSE(vit->do_center_crop);
  EXPECT_DOUBLE_EQ(vit->mean[2], 0.3);
}

TEST(ImageProcessor, WhatIsNotServedIsRefusedByName) {
  EXPECT_THAT(refusal(R"({"image_processor_type": "OwlViTImageProcessor"})"), HasSubstr("\"OwlViT\" is not served"));
  EXPECT_THAT(refusal("{}"), HasSubstr("not named"));
  EXPECT_THAT(refusal("[]"), HasSubstr("not a JSON object"));
  const std::string vit = R"({"image_processor_type": "ViTImageProcessor", )";
  EXPECT_THAT(refusal(vit + R"("size": {"longest_edge": 9}})"), HasSubstr("longest_edge"));
  EXPECT_THAT(refusal(vit + R"("size": 0})"), HasSubstr("size is 0"));
  EXPECT_THAT(refusal(vit + R"("do_resize": 1})"), HasSubstr("do_resize is 1"));
  EXPECT_THAT(refusal(vit + R"("resample": 7})"), HasSubstr("resample is 7"));
  EXPECT_THAT(refusal(vit + R"("image_std": [1, 0, 1]})"), HasSubstr("zero"));
  EXPECT_THAT(refusal(vit + R"("do_pad": true})"), HasSubstr("do_pad"));
}

TEST(ImageProcessor, GivesThePlanesOfEachColourScaledAndNormalised) {
  Processor p;
  p.height = 2;
  p.width = 3;
  const auto values = p(gradient(3, 2));
  EXPECT_EQ(values.shape, (std::vector<int64_t>{1, 3, 2, 3}));
  const auto& floats = std::get<std::vector<float>>(values.values);
  EXPECT_FLOAT_EQ(floats[1], (85 / 255.0f - 0.5f) / 0.5f);       // red of the second pixel
  EXPECT_FLOAT_EQ(floats[6 + 3], (127 / 255.0f - 0.5f) / 0.5f);  // green of the second row
}

TEST(ImageProcessor, ACropLargerThanTheImageIsBlackAroundIt) {
  const auto out = image::center_crop(gradient(2, 2), 5, 4);
  const auto red = [&](int64_t x, int64_t y) { return out.rgb[static_cast<size_t>((y * 5 + x) * 3)]; };
  EXPECT_EQ(red(0, 1), 0);
  EXPECT_EQ(red(3, 1), 127);  // two columns before, one after
  EXPECT_EQ(red(4, 1), 0);
}

TEST(ImageProcessor, AStripIsNotBlownUp) {
  Processor p;
  p.shortest_edge = 224;
  EXPECT_THROW(p({1, 1'000'000, std::vector<uint8_t>(3'000'000)}), Error);
}

}  // namespace
}  // namespace pm::test
