// SPDX-License-Identifier: Apache-2.0
// Tests POST /detect over a real socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/base64.h"
#include "tests/unit/worker/image/files.h"
#include "tests/unit/worker/server/support/task_test_server.h"

namespace pm::test {
namespace {

using testing::HasSubstr;

server::Capabilities detector() {
  auto can = capabilities_of("detect-objects");
  can.labels = {"cat", "dog"};
  can.takes_text = false;
  can.takes_images = true;
  image::Processor processor;
  processor.do_resize = false;
  can.images = processor;
  return can;
}

/// Two queries: a dog in the left half, and nothing.
Arrays one_dog(const engine::ForwardRequest&) {
  return {{"logits", floats({1, 2, 3}, {0, 4, 0, 0, 0, 9})},
          {"pred_boxes", floats({1, 2, 4}, {0.25F, 0.5F, 0.5F, 1, 0.5F, 0.5F, 1, 1})}};
}

TEST(Detect, AnObjectHasItsLabelItsScoreAndItsBoxInPixels) {
  TaskTestServer tasked(detector());
  tasked.engine.answer_forward(one_dog);
  const std::string image = base::encode_base64(png(gradient(6, 4)));
  const auto found = tasked.ask("/detect", {{"inputs", image}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0]["label"], "dog");
  EXPECT_NEAR(found[0]["score"].get<double>(), 0.9646, 1e-3);
  EXPECT_EQ(found[0]["box"], json({{"xmin", 0}, {"ymin", 0}, {"xmax", 3}, {"ymax", 4}}));
  EXPECT_EQ(tasked.ask("/detect", {{"inputs", image}, {"threshold", 0.97}}), json::array());
  const auto many = tasked.ask("/detect", {{"inputs", json::array({image, json{{"image", image}}})}, {"threshold", 0}});
  ASSERT_EQ(many.size(), 2u);
  EXPECT_EQ(many[0].size(), 2u);
  EXPECT_EQ(many[1], many[0]);
}

TEST(Detect, WhatIsWrongIsNamed) {
  TaskTestServer tasked(detector());
  tasked.engine.answer_forward(one_dog);
  const std::string image = base::encode_base64(png(gradient(6, 4)));
  const auto message = [&](const json& body) {
    return error_of(tasked.post("/detect", body), 400).value("message", std::string());
  };
  EXPECT_THAT(message({{"inputs", image}, {"threshold", 1.5}}), HasSubstr("a number from 0 to 1"));
  EXPECT_THAT(message({{"inputs", image}, {"threshold", "high"}}), HasSubstr("threshold"));
  EXPECT_THAT(message({{"inputs", image}, {"treshold", 0.5}}), HasSubstr("threshold"));
  EXPECT_THAT(message({{"inputs", base::encode_base64("no image")}}), HasSubstr("PNG"));
  EXPECT_THAT(message({{"inputs", json::array()}}), HasSubstr("1 to 64"));
}

}  // namespace
}  // namespace pm::test
