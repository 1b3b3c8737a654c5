// SPDX-License-Identifier: Apache-2.0
// Tests POST /classify for each task over a real socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/base64.h"
#include "tests/unit/worker/image/files.h"
#include "tests/unit/worker/server/support/task_test_server.h"

namespace pm::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string message_of(const json& error) { return error.value("message", ""); }

server::Capabilities classes(const std::string& task, std::vector<std::string> labels) {
  auto can = capabilities_of(task);
  can.labels = std::move(labels);
  return can;
}

/// The logits of each row are 0, 1, 2, ... for `n` classes, plus the row's second id in the first class.
FakeEngine::ForwardFunction logits(int64_t n) {
  return [n](const engine::ForwardRequest& request) {
    const auto& shape = request.inputs.at("input_ids").shape;
    std::vector<float> values;
    for (int64_t r = 0; r < shape[0]; ++r)
      for (int64_t i = 0; i < n; ++i)
        values.push_back(i == 0 ? static_cast<float>(ids_of(request)[static_cast<size_t>(r * shape[1] + 1)]) - 5
                                : static_cast<float>(i));
    return Arrays{{request.outputs.at(0), floats({shape[0], n}, values)}};
  };
}

TEST(Classify, OneTextReturnsAListAndSeveralReturnLists) {
  TaskTestServer tasked(classes("classify", {"sad", "merry"}));
  tasked.engine.answer_forward(logits(2));
  const auto one = tasked.ask("/classify", {{"inputs", "the cat"}});  // logits 0, 1
  ASSERT_EQ(one.size(), 2u);
  EXPECT_EQ(one[0]["label"], "merry");
  EXPECT_NEAR(one[0]["score"].get<double>(), 1 / (1 + std::exp(-1)), 1e-9);
  EXPECT_NEAR(one[1]["score"].get<double>(), 1 / (1 + std::exp(1)), 1e-9);
  const auto many = tasked.ask("/classify", {{"inputs", json::array({"the cat", "dog"})}});  // logits 3, 1
  EXPECT_EQ(many[0], one);
  EXPECT_EQ(many[1][0]["label"], "sad");
  EXPECT_EQ(tasked.ask("/classify", {{"inputs", "the cat"}, {"top_k", 1}}).size(), 1u);
  EXPECT_EQ(tasked.ask("/classify", {{"inputs", "the cat"}, {"parameters", {{"top_k", 1}}}}).size(), 1u);
}

TEST(Classify, TheActivationFollowsTheProblemTypeUnlessNamed) {
  const auto score = [](server::Capabilities can, const std::string& problem, const char* function) {
    can.problem_type = problem;
    TaskTestServer tasked(can);
    tasked.engine.answer_forward(logits(static_cast<int64_t>(can.labels.size())));
    json body{{"inputs", "dog"}};
    if (function) body["function_to_apply"] = function;
    return tasked.ask("/classify", body)[0]["score"].get<double>();
  };
  const auto two = classes("classify", {"a", "b"}), one = classes("classify", {"a"});
  const double soft = 1 / (1 + std::exp(-2)), sig = 1 / (1 + std::exp(-3));  // logits 3, 1
  EXPECT_NEAR(score(two, "", nullptr), soft, 1e-9);
  EXPECT_NEAR(score(two, "single_label_classification", nullptr), soft, 1e-9);
  EXPECT_NEAR(score(two, "multi_label_classification", nullptr), sig, 1e-9);
  EXPECT_NEAR(score(one, "", nullptr), sig, 1e-9);
  EXPECT_NEAR(score(one, "regression", nullptr), 3, 1e-9);
  EXPECT_NEAR(score(two, "", "none"), 3, 1e-9);
  EXPECT_NEAR(score(two, "", "sigmoid"), sig, 1e-9);
  EXPECT_NEAR(score(one, "", "softmax"), 1, 1e-9);
}

TEST(Classify, PairsAreArraysOrObjectsAndCarryTokenTypes) {
  TaskTestServer tasked(classes("classify", {"a", "b"}));
  tasked.engine.answer_forward(logits(2));
  for (const json& pair : {json{{"text", "the cat"}, {"text_pair", "dog"}}, json::array({"the cat", "dog"})})
    tasked.ask("/classify", {{"inputs", json::array({pair})}});
  for (const auto& forward : tasked.engine.forward_requests()) {
    EXPECT_EQ(ids_of(forward), (std::vector<int64_t>{class_id, the_id, cat_id, separator_id, dog_id, separator_id}));
    EXPECT_EQ(std::get<std::vector<int64_t>>(forward.inputs.at("token_type_ids").values),
              (std::vector<int64_t>{0, 0, 0, 0, 1, 1}));
  }
  auto untyped = classes("classify", {"a", "b"});
  untyped.token_types = false;
  TaskTestServer without(untyped);
  without.engine.answer_forward(logits(2));
  without.ask("/classify", {{"inputs", {{"text", "the cat"}, {"text_pair", "dog"}}}});
  EXPECT_FALSE(without.engine.forward_requests()[0].inputs.contains("token_type_ids"));
}

TEST(Classify, TruncationOfAPairShortensTheLongerText) {
  TaskTestServer tasked(classes("classify", {"a", "b"}));
  tasked.engine.answer_forward(logits(2));
  std::string text = "dog";
  for (int i = 0; i < 30; ++i) text += " ran";
  tasked.ask("/classify", {{"inputs", json::array({json::array({"the cat sat", text})})}, {"truncate", true}});
  const auto ids = ids_of(tasked.engine.forward_requests()[0]);
  EXPECT_EQ(ids.size(), 16u);
  EXPECT_EQ(std::vector<int64_t>(ids.begin(), ids.begin() + 6),
            (std::vector<int64_t>{class_id, the_id, cat_id, sat_id, separator_id, dog_id}));
  EXPECT_EQ(ids.back(), separator_id);
}

TEST(Classify, InvalidInputsAreRefusedByIndex) {
  TaskTestServer tasked(classes("classify", {"a", "b"}));
  const auto message = [&](const json& body) { return message_of(error_of(tasked.post("/classify", body), 400)); };
  EXPECT_THAT(message(json::object()), HasSubstr("inputs is missing"));
  EXPECT_THAT(message({{"inputs", json::array()}}), HasSubstr("at least one"));
  EXPECT_THAT(message({{"inputs", json::array({"a", 5})}}), HasSubstr("inputs[1] is 5"));
  EXPECT_THAT(message({{"inputs", json::array({json::array({"a", "b", "c"})})}}), HasSubstr("inputs[0]"));
  EXPECT_THAT(message({{"inputs", json{{"text_pair", "b"}}}}), HasSubstr("text_pair"));
  EXPECT_THAT(message({{"inputs", "a"}, {"function_to_apply", "relu"}}), HasSubstr("softmax"));
  EXPECT_THAT(message({{"inputs", "a"}, {"top_k", 0}}), HasSubstr("top_k is 0"));
  EXPECT_THAT(message({{"inputs", "a"}, {"top_k", 1}, {"parameters", {{"top_k", 1}}}}), HasSubstr("given twice"));
  EXPECT_THAT(message({{"inputs", "a"}, {"parameters", 1}}), HasSubstr("parameters is 1"));
  EXPECT_TRUE(tasked.engine.forward_requests().empty());
}

TEST(Classify, NextSentencePrediction) {
  auto can = capabilities_of("next-sentence");
  can.next_sentence = "logits";
  TaskTestServer tasked(can);
  tasked.engine.answer_forward(logits(2));
  const auto answer =
      tasked.ask("/classify", {{"inputs", json::array({json::array({"the cat sat", "dog ran"})})}})[0];  // logits 0, 1
  EXPECT_EQ(answer[0]["label"], "not_next");
  EXPECT_EQ(answer[1]["label"], "is_next");
  EXPECT_THAT(message_of(error_of(tasked.post("/classify", {{"inputs", "the cat"}}), 400)), HasSubstr("text_pair"));
}

TEST(Classify, ChoicesAreRankedInOneForwardPassOfThreeDimensions) {
  TaskTestServer tasked(capabilities_of("multiple-choice"));
  tasked.engine.answer_forward([](const engine::ForwardRequest& request) {
    EXPECT_EQ(request.inputs.at("input_ids").shape, (std::vector<int64_t>{1, 3, 5}));
    return Arrays{{"logits", floats({1, 3}, {0, 2, 1})}};
  });
  const auto answer = tasked.ask("/classify", {{"prompt", "the"}, {"choices", json::array({"cat", "dog", "Anna"})}});
  ASSERT_EQ(answer.size(), 3u);
  EXPECT_EQ(answer[0]["label"], "dog");
  EXPECT_EQ(answer[0]["index"], 1);
  EXPECT_EQ(answer[2]["label"], "cat");
  EXPECT_EQ(
      tasked.ask("/classify", {{"inputs", {{"prompt", "the"}, {"choices", json::array({"cat", "dog", "Anna"})}}}}),
      answer);
  EXPECT_THAT(message_of(error_of(tasked.post("/classify", {{"prompt", "the"}}), 400)),
              HasSubstr("choices is missing"));
}

/// The label of a token is O, B-PER or I-PER.
Arrays people(const engine::ForwardRequest& request) {
  return {{"logits", per_token(request, 3, [](int64_t id, int64_t i) {
             return (id == anna_id && i == 1) || (id == smith_id && i == 2) ||
                            (id != anna_id && id != smith_id && i == 0)
                        ? 5.f
                        : 0.f;
           })}};
}

TEST(ClassifyTokens, EntitiesHaveCharacterOffsetsInTheOriginalText) {
  TaskTestServer tasked(classes("classify-tokens", {"O", "B-PER", "I-PER"}));
  tasked.engine.answer_forward(people);
  const double sure = std::exp(5) / (std::exp(5) + 2);
  const auto each = tasked.ask("/classify", {{"inputs", "é Anna  Smith ran"}});
  ASSERT_EQ(each.size(), 2u);
  EXPECT_EQ(each[1]["entity"], "I-PER");
  EXPECT_EQ(each[1]["word"], "Smith");
  EXPECT_EQ(each[1]["index"], 3);
  EXPECT_EQ(each[1]["start"], 8);
  EXPECT_EQ(each[1]["end"], 13);
  EXPECT_NEAR(each[1]["score"].get<double>(), sure, 1e-9);
  const auto groups = tasked.ask(
      "/classify", {{"inputs", json::array({"é Anna  Smith ran", "Anna Anna"})}, {"aggregation_strategy", "simple"}});
  ASSERT_EQ(groups[0].size(), 1u);
  EXPECT_EQ(groups[0][0]["entity_group"], "PER");
  EXPECT_EQ(groups[0][0]["word"], "Anna Smith");
  EXPECT_EQ(groups[0][0]["start"], 2);
  EXPECT_EQ(groups[0][0]["end"], 13);
  EXPECT_EQ(groups[1].size(), 2u) << "a B- label begins a new entity";
  EXPECT_EQ(tasked.ask("/classify", {{"inputs", "Anna ran"}, {"ignore_labels", json::array()}}).size(), 2u);
  EXPECT_THAT(message_of(error_of(tasked.post("/classify", {{"inputs", "a"}, {"aggregation_strategy", "max"}}), 400)),
              HasSubstr("none or simple"));
}

TEST(ClassifyImages, FilesAreBase64OrTheWholeBody) {
  auto can = classes("classify-images", {"a", "b", "c", "d", "e", "f"});
  can.takes_text = false;
  can.takes_images = true;
  image::Processor processor;
  processor.width = processor.height = 3;
  can.images = processor;
  TaskTestServer tasked(can);
  tasked.engine.answer_forward([](const engine::ForwardRequest& request) {
    const int64_t n = request.inputs.at("pixel_values").shape[0];
    std::vector<float> values;
    for (int64_t i = 0; i < n * 6; ++i) values.push_back(static_cast<float>(i % 6));
    return Arrays{{"logits", floats({n, 6}, values)}};
  });
  const std::string file = png(gradient(7, 5)), text = base::encode_base64(file);
  const auto one = tasked.ask("/classify", {{"inputs", text}});
  ASSERT_EQ(one.size(), 5u) << "the default top_k is 5, as in the pipeline";
  EXPECT_EQ(one[0]["label"], "f");
  EXPECT_EQ(tasked.ask("/classify", {{"inputs", json::array({text, json{{"image", text}}})}, {"top_k", 1}}).size(), 2u);
  const auto raw = tasked.client().Post("/classify", file, "image/png");
  ASSERT_TRUE(raw);
  EXPECT_EQ(json::parse(raw->body), one);
  EXPECT_EQ(error_of(tasked.client().Post("/classify", "GIF89a", "image/gif"), 400)["code"], "invalid_image");
  EXPECT_EQ(error_of(tasked.post("/classify", {{"inputs", std::vector<std::string>(65, text)}}), 413)["code"],
            "too_many_inputs");
  TaskTestServer texts(classes("classify", {"a", "b"}));
  EXPECT_THAT(message_of(error_of(texts.client().Post("/classify", file, "image/png"), 400)),
              HasSubstr("classifies texts"));
}

}  // namespace
}  // namespace pm::test
