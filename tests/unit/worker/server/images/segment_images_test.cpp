// SPDX-License-Identifier: Apache-2.0
// Tests POST /segment over a real socket, and how masks become segments.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/base64.h"
#include "tests/unit/worker/image/files.h"
#include "tests/unit/worker/server/support/task_test_server.h"
#include "worker/server/images/segmentation.h"

namespace pm::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

server::Capabilities segmenter() {
  auto can = capabilities_of("detect-objects");
  can.labels = {"cat", "dog"};
  can.takes_text = false;
  can.takes_images = true;
  can.masks = "pred_masks";
  can.image_tokens = 2;
  image::Processor processor;
  processor.do_resize = false;
  can.images = processor;
  return can;
}

/// Two objects: a dog in the left half, and a cat in the right one. Masks are half as large as the image.
Arrays both(const engine::ForwardRequest&) {
  return {{"logits", floats({1, 2, 3}, {0, 9, 0, 8, 0, 0})}, {"pred_masks", floats({1, 2, 1, 2}, {9, -9, -9, 9})}};
}

std::vector<int> grays(const json& segment) {
  const image::Image mask = image::open(*base::decode_base64(segment["mask"].get<std::string>()));
  std::vector<int> first;
  for (size_t i = 0; i < mask.rgb.size(); i += 3) first.push_back(mask.rgb[i]);
  return first;
}

TEST(Segment, AnObjectHasItsLabelItsScoreAndItsMask) {
  TaskTestServer tasked(segmenter());
  tasked.engine.answer_forward(both);
  const std::string image = base::encode_base64(png(gradient(4, 2)));
  const auto found = tasked.ask("/segment", {{"inputs", image}});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0]["label"], "dog");
  EXPECT_NEAR(found[0]["score"].get<double>(), 0.999753, 1e-6);
  EXPECT_THAT(grays(found[0]), ElementsAre(255, 255, 0, 0, 255, 255, 0, 0));
  EXPECT_EQ(found[1]["label"], "cat");
  EXPECT_THAT(grays(found[1]), ElementsAre(0, 0, 255, 255, 0, 0, 255, 255));
  EXPECT_EQ(tasked.ask("/segment", {{"inputs", image}, {"threshold", 0.9995}}).size(), 1u);
  EXPECT_EQ(tasked.ask("/segment", {{"inputs", image}, {"threshold", 1}}), json::array());
  const auto classes = tasked.ask("/segment", {{"inputs", image}, {"subtask", "semantic"}});
  ASSERT_EQ(classes.size(), 2u);
  EXPECT_EQ(classes[0]["label"], "cat");
  EXPECT_TRUE(classes[0]["score"].is_null());
  EXPECT_EQ(classes[0]["mask"], found[1]["mask"]);
  const auto many = tasked.ask("/segment", {{"inputs", json::array({image, json{{"image", image}}})}});
  ASSERT_EQ(many.size(), 2u);
  EXPECT_EQ(many[1], found);
}

TEST(Segment, WhatIsWrongIsNamed) {
  TaskTestServer tasked(segmenter());
  tasked.engine.answer_forward(both);
  const std::string image = base::encode_base64(png(gradient(4, 2)));
  const auto message = [&](const json& body, int status = 400) {
    return error_of(tasked.post("/segment", body), status).value("message", std::string());
  };
  for (const char* name : {"threshold", "mask_threshold", "overlap_mask_area_threshold"}) {
    for (const json& wrong : {json(1.5), json(-0.1), json("high")})
      EXPECT_THAT(message({{"inputs", image}, {name, wrong}}), HasSubstr(std::string(name) + " is")) << wrong;
  }
  EXPECT_THAT(message({{"inputs", image}, {"subtask", "all"}}), HasSubstr("panoptic, instance or semantic"));
  EXPECT_THAT(message({{"inputs", image}, {"treshold", 0.5}}), HasSubstr("threshold"));
  EXPECT_THAT(message({{"inputs", base::encode_base64("no image")}}), HasSubstr("PNG"));
  auto many = segmenter();
  many.image_tokens = int64_t{1} << 31;
  TaskTestServer small(many);
  EXPECT_THAT(error_of(small.post("/segment", {{"inputs", image}}), 413).value("message", std::string()),
              HasSubstr("8 pixels; at most 2"));
  auto boxes = segmenter();
  boxes.masks.clear();
  TaskTestServer without(boxes);
  EXPECT_EQ(without.post("/segment", {{"inputs", image}})->status, 404);
}

TEST(Segmentation, AnObjectThatWinsTooFewOfItsPixelsIsLeftOut) {
  const std::vector<float> logits{9, 0, 8, 0}, masks{9, 9, 9, -9, 9, 9, 9, 9};  // the second wins one pixel of four
  const server::ObjectMasks given{logits, masks, 2, 1, 4};
  const auto labels = [&](double overlap) {
    std::vector<uint32_t> numbers;
    for (const auto& segment : server::segment_objects(given, {.overlap_mask_area_threshold = overlap}, 1, 4).segments)
      numbers.push_back(segment.number);
    return numbers;
  };
  EXPECT_THAT(labels(0.2), ElementsAre(0, 1));
  EXPECT_THAT(labels(0.25), ElementsAre(0));  // more than this share is needed
}

TEST(Segmentation, NoObjectIsNoSegment) {
  const std::vector<float> logits{0, 9}, masks{9};
  EXPECT_TRUE(server::segment_objects({logits, masks, 2, 1, 1}, {.threshold = 0}, 3, 3).segments.empty());
}

}  // namespace
}  // namespace pm::test
