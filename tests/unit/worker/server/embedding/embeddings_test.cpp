// SPDX-License-Identifier: Apache-2.0
// Tests POST /v1/embeddings and POST /similarity over a real socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/base64.h"
#include "tests/unit/worker/image/files.h"
#include "tests/unit/worker/server/support/task_test_server.h"

namespace pm::test {
namespace {

using server::Pooling;
using testing::AllOf;
using testing::HasSubstr;

std::string message_of(const json& error) { return error.value("message", ""); }

/// The state of every token is {id, 1}; the pooler returns {7, 24}.
Arrays states(const engine::ForwardRequest& request) {
  Arrays all;
  for (const auto& name : request.outputs) {
    const auto rows = request.inputs.at("input_ids").shape[0];
    if (name == "last_hidden_state")
      all[name] = per_token(request, 2, [](int64_t id, int64_t i) { return i == 0 ? static_cast<float>(id) : 1.f; });
    std::vector<float> pooled;
    for (int64_t r = 0; r < rows; ++r) pooled.insert(pooled.end(), {7, 24});
    if (name == "pooler_output") all[name] = floats({rows, 2}, pooled);
  }
  return all;
}

struct Embeddings : testing::Test {
  Embeddings() { tasked.engine.answer_forward(states); }
  std::vector<float> first(json body) {
    const auto answer = tasked.ask("/v1/embeddings", body);
    return answer["data"][0]["embedding"].get<std::vector<float>>();
  }
  TaskTestServer tasked{embedding_capabilities()};
};

TEST_F(Embeddings, ReplyHasOpenAisFormatAndCountsTokens) {
  const auto body =
      tasked.ask("/v1/embeddings", {{"model", "org/tiny"}, {"input", json::array({"the cat", "dog"})}, {"user", "me"}});
  EXPECT_EQ(body["object"], "list");
  EXPECT_EQ(body["model"], "org/tiny");
  ASSERT_EQ(body["data"].size(), 2u);
  EXPECT_EQ(body["data"][1]["object"], "embedding");
  EXPECT_EQ(body["data"][1]["index"], 1);
  EXPECT_EQ(body["usage"], json({{"prompt_tokens", 7}, {"total_tokens", 7}}));
  const auto forwards = tasked.engine.forward_requests();
  ASSERT_EQ(forwards.size(), 1u);
  EXPECT_EQ(forwards[0].inputs.at("attention_mask"), (Array{{2, 4}, std::vector<int64_t>{1, 1, 1, 1, 1, 1, 1, 0}}));
  EXPECT_EQ(forwards[0].outputs, std::vector<std::string>{"last_hidden_state"});
}

TEST_F(Embeddings, TheMeanExcludesPaddingAndIsNormalized) {
  const auto body = tasked.ask("/v1/embeddings", {{"input", json::array({"the cat sat", "dog"})}});
  const double mean = (class_id + dog_id + separator_id) / 3.0;
  EXPECT_NEAR(body["data"][1]["embedding"][0].get<double>(), mean / std::hypot(mean, 1), 1e-6);
  EXPECT_NEAR(body["data"][1]["embedding"][1].get<double>(), 1 / std::hypot(mean, 1), 1e-6);
}

TEST_F(Embeddings, ARequestMayChoosePoolingAndDimensions) {
  const auto plain = [&](const char* pooling) {
    return first({{"input", "the dog"}, {"pooling", pooling}, {"normalize", false}});
  };
  EXPECT_EQ(plain("cls"), (std::vector<float>{class_id, 1}));
  EXPECT_EQ(plain("last"), (std::vector<float>{separator_id, 1}));
  EXPECT_EQ(plain("max"), (std::vector<float>{dog_id, 1}));
  EXPECT_EQ(plain("mean"), (std::vector<float>{(class_id + the_id + dog_id + separator_id) / 4.f, 1}));
  EXPECT_EQ(plain("pooler"), (std::vector<float>{7, 24}));
  EXPECT_THAT(first({{"input", "the dog"}, {"pooling", "pooler"}}),
              testing::Pointwise(testing::FloatNear(1e-6f), {0.28f, 0.96f}));
  EXPECT_EQ(first({{"input", "the dog"}, {"pooling", "pooler"}, {"dimensions", 1}}), std::vector<float>{1});
  EXPECT_THAT(message_of(error_of(tasked.post("/v1/embeddings", {{"input", "a"}, {"pooling", "sum"}}), 400)),
              AllOf(HasSubstr("sum"), HasSubstr("mean"), HasSubstr("pooler")));
  EXPECT_THAT(message_of(error_of(tasked.post("/v1/embeddings", {{"input", "a"}, {"dimensions", 3}}), 400)),
              HasSubstr("from 1 to 2"));
}

TEST_F(Embeddings, Base64HoldsLittleEndianFloats) {
  const auto body = tasked.ask(
      "/v1/embeddings", {{"input", "dog"}, {"pooling", "pooler"}, {"normalize", false}, {"encoding_format", "base64"}});
  EXPECT_EQ(base::decode_base64(body["data"][0]["embedding"].get<std::string>()),
            std::string("\0\0\xe0\x40\0\0\xc0\x41", 8));
}

TEST_F(Embeddings, InputsMayBeTextsOrTokenIds) {
  for (const json& input : {json("dog"), json::array({"dog"}), json::array({class_id, dog_id, separator_id}),
                            json::array({json::array({class_id, dog_id, separator_id})})})
    EXPECT_EQ(first({{"input", input}}), first({{"input", "dog"}})) << input;
}

TEST_F(Embeddings, InvalidInputsAreRefusedByIndex) {
  const auto message = [&](const json& body) { return message_of(error_of(tasked.post("/v1/embeddings", body), 400)); };
  EXPECT_THAT(message(json::object()), HasSubstr("input is missing"));
  EXPECT_THAT(message({{"input", json::array()}}), HasSubstr("array of 0"));
  EXPECT_THAT(message({{"input", ""}}), HasSubstr("input is \"\""));
  EXPECT_THAT(message({{"input", json::array({"a", ""})}}), HasSubstr("input[1]"));
  EXPECT_THAT(message({{"input", json::array({json::array({1, -1})})}}), HasSubstr("input[0][1] is -1"));
  EXPECT_THAT(message({{"input", 5}}), HasSubstr("input is 5"));
  EXPECT_THAT(message({{"input", json{{"sound", "x"}}}}), HasSubstr("sound"));
  EXPECT_THAT(message({{"input", json{{"image", "x"}}}}), HasSubstr("takes texts only"));
  EXPECT_THAT(message({{"input", "a"}, {"encoding_format", "int8"}}), HasSubstr("float or base64"));
  EXPECT_THAT(message({{"input", "a"}, {"inputs", "a"}}), HasSubstr("inputs is no field"));
  EXPECT_EQ(error_of(tasked.post("/v1/embeddings", {{"input", "a"}, {"model", "other"}}), 404)["code"],
            "model_not_found");
  EXPECT_EQ(error_of(tasked.post("/v1/embeddings", {{"input", std::vector<std::string>(2049, "a")}}), 413)["code"],
            "too_many_inputs");
  EXPECT_TRUE(tasked.engine.forward_requests().empty());
}

TEST_F(Embeddings, LongTextsAreRefusedOrTruncatedOnRequest) {
  std::string text = "the";
  for (int i = 0; i < 19; ++i) text += " cat";
  const auto error = error_of(tasked.post("/v1/embeddings", {{"input", json::array({"dog", text})}}), 413);
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_THAT(message_of(error),
              AllOf(HasSubstr("input[1] has 22 tokens"), HasSubstr("at most 16"), HasSubstr("truncate")));
  EXPECT_EQ(first({{"input", text}, {"truncate", true}, {"pooling", "last"}, {"normalize", false}})[0], separator_id)
      << "special tokens stay";
  EXPECT_EQ(ids_of(tasked.engine.forward_requests().back()).size(), 16u);
}

TEST_F(Embeddings, ManyTextsAreSeveralForwardPassesInOrder) {
  std::vector<std::string> texts;
  for (int i = 0; i < 400; ++i) texts.push_back(i % 2 ? "dog" : "the cat sat");
  const auto body = tasked.ask("/v1/embeddings", {{"input", texts}, {"pooling", "max"}, {"normalize", false}});
  ASSERT_EQ(body["data"].size(), 400u);
  for (size_t i = 0; i < 400; ++i) EXPECT_EQ(body["data"][i]["embedding"][0], i % 2 ? dog_id : sat_id);
  EXPECT_GT(tasked.engine.forward_requests().size(), 3u);
  for (const auto& forward : tasked.engine.forward_requests()) EXPECT_LE(ids_of(forward).size(), 512u);
}

TEST_F(Embeddings, SimilarityIsTheCosineInBothRequestForms) {
  const json expected = tasked.ask("/similarity", {{"source", "dog"}, {"sentences", json::array({"dog", "cat"})}});
  EXPECT_NEAR(expected[0].get<double>(), 1, 1e-6);
  EXPECT_LT(expected[1].get<double>(), 1);
  EXPECT_EQ(tasked.ask("/similarity",
                       {{"inputs", json{{"source_sentence", "dog"}, {"sentences", json::array({"dog", "cat"})}}}}),
            expected);
  EXPECT_THAT(message_of(error_of(tasked.post("/similarity", {{"source", "dog"}}), 400)),
              HasSubstr("sentences is missing"));
  EXPECT_THAT(message_of(error_of(tasked.post("/similarity", {{"sentences", json::array({"dog"})}}), 400)),
              HasSubstr("source is missing"));
}

TEST(EmbeddingModel, UnsupportedModulesAreRefusedUnlessAPoolingIsNamed) {
  auto can = embedding_capabilities();
  can.embedding_refusal = "modules.json has the module LSTM, which is not supported";
  TaskTestServer tasked(can);
  tasked.engine.answer_forward(states);
  EXPECT_THAT(message_of(error_of(tasked.post("/v1/embeddings", {{"input", "a"}}), 400)), HasSubstr("LSTM"));
  tasked.ask("/v1/embeddings", {{"input", "a"}, {"pooling", "mean"}});
}

TEST(EmbeddingModel, ThePromptIsPrependedToStrippedTexts) {
  auto can = embedding_capabilities();
  can.prompts.standard = "the ";
  can.strip = true;
  TaskTestServer tasked(can);
  tasked.engine.answer_forward(states);
  tasked.ask("/v1/embeddings", {{"input", "  dog\n"}});
  EXPECT_EQ(ids_of(tasked.engine.forward_requests()[0]),
            (std::vector<int64_t>{class_id, the_id, dog_id, separator_id}));
}

TEST(EmbeddingModel, ARequestChoosesAPromptByNameByUseOrAsText) {
  auto can = embedding_capabilities();
  can.prompts = {{{"query", "cat "}, {"passage", "sat "}}, ""};
  TaskTestServer tasked(can);
  tasked.engine.answer_forward(states);
  const auto first_id = [&](const char* field, const char* value) {
    tasked.ask("/v1/embeddings", {{"input", "dog"}, {field, value}});
    return ids_of(tasked.engine.forward_requests().back())[1];
  };
  EXPECT_EQ(first_id("prompt_name", "passage"), sat_id);
  EXPECT_EQ(first_id("input_type", "query"), cat_id);
  EXPECT_EQ(first_id("input_type", "document"), sat_id);
  EXPECT_EQ(first_id("prompt", "the "), the_id);
  EXPECT_EQ(first_id("user", "me"), dog_id);
  const auto message = [&](json body) {
    body["input"] = "dog";
    return message_of(error_of(tasked.post("/v1/embeddings", body), 400));
  };
  EXPECT_THAT(message({{"prompt_name", "other"}}), AllOf(HasSubstr("other"), HasSubstr("passage, query")));
  EXPECT_THAT(message({{"input_type", "other"}}), AllOf(HasSubstr("other"), HasSubstr("document")));
  EXPECT_THAT(message({{"prompt", "a"}, {"input_type", "query"}}), HasSubstr("exclude each other"));
}

TEST(EmbeddingModel, WithoutATokenizerOnlyTokenIdsAreAccepted) {
  TaskTestServer tasked(embedding_capabilities(), false);
  tasked.engine.answer_forward(states);
  EXPECT_EQ(error_of(tasked.post("/v1/embeddings", {{"input", "dog"}}), 400)["code"], "no_tokenizer");
  tasked.ask("/v1/embeddings", {{"input", json::array({dog_id})}});
}

server::Capabilities two_towers() {
  auto can = capabilities_of("similarity");
  can.takes_images = true;
  can.text = {"text_embeds"};
  can.image = {"image_embeds"};
  image::Processor processor;
  processor.width = processor.height = 2;
  can.images = processor;
  return can;
}

/// text_embeds is {first id after [CLS], 0}, image_embeds {first pixel, 1}, and the logits are image + 10 * text.
Arrays towers(const engine::ForwardRequest& request) {
  Arrays all;
  int64_t texts = 0, images = 0;
  if (request.inputs.contains("input_ids")) texts = request.inputs.at("input_ids").shape[0];
  if (request.inputs.contains("pixel_values")) images = request.inputs.at("pixel_values").shape[0];
  std::vector<float> text, image, logits;
  for (int64_t t = 0; t < texts; ++t) text.insert(text.end(), {3, 4});
  for (int64_t i = 0; i < images; ++i) image.insert(image.end(), {0, 2});
  for (int64_t i = 0; i < images; ++i)
    for (int64_t t = 0; t < texts; ++t) logits.push_back(static_cast<float>(i + 10 * t));
  for (const auto& name : request.outputs) {
    if (name == "text_embeds") all[name] = floats({texts, 2}, text);
    if (name == "image_embeds") all[name] = floats({images, 2}, image);
    if (name == "logits_per_image") all[name] = floats({images, texts}, logits);
  }
  return all;
}

std::string picture() {
  const std::string file = png(gradient(5, 4));
  return base::encode_base64(file);
}

TEST(ClipModel, TextsAndImagesAreEmbeddedInOneRequest) {
  TaskTestServer tasked(two_towers());
  tasked.engine.answer_forward(towers);
  const auto body =
      tasked.ask("/v1/embeddings", {{"input", json::array({"dog", json{{"image", picture()}}, json{{"text", "cat"}},
                                                           json{{"image", "data:image/png;base64," + picture()}}})}});
  ASSERT_EQ(body["data"].size(), 4u);
  EXPECT_NEAR(body["data"][0]["embedding"][0].get<double>(), 0.6, 1e-6);
  EXPECT_EQ(body["data"][1]["embedding"], json({0, 1}));
  EXPECT_NEAR(body["data"][2]["embedding"][1].get<double>(), 0.8, 1e-6);
  EXPECT_EQ(body["data"][3]["embedding"], json({0, 1}));
  const auto forwards = tasked.engine.forward_requests();
  ASSERT_EQ(forwards.size(), 2u);
  EXPECT_EQ(forwards[1].inputs.at("pixel_values").shape, (std::vector<int64_t>{2, 3, 2, 2}));
}

TEST(ClipModel, SimilarityReturnsLogitsAndProbabilitiesPerImage) {
  TaskTestServer tasked(two_towers());
  tasked.engine.answer_forward(towers);
  const auto body = tasked.ask(
      "/similarity", {{"texts", json::array({"dog", "cat"})}, {"images", json::array({picture(), picture()})}});
  EXPECT_EQ(body["logits_per_image"], json({{0, 10}, {1, 11}}));
  EXPECT_NEAR(body["probabilities"][0][1].get<double>(), 1 / (1 + std::exp(-10)), 1e-9);
  EXPECT_EQ(tasked.ask("/similarity", {{"text", "dog"}, {"image", picture()}})["probabilities"],
            json::array({json::array({1.0})}));
  EXPECT_THAT(message_of(error_of(tasked.post("/similarity", {{"text", "dog"}}), 400)), HasSubstr("image is missing"));
  EXPECT_THAT(
      message_of(error_of(
          tasked.post("/similarity", {{"text", "dog"}, {"texts", json::array({"dog"})}, {"image", picture()}}), 400)),
      HasSubstr("both text and texts"));
}

TEST(ClipModel, InvalidImagesAreRefusedByIndexAndReason) {
  TaskTestServer tasked(two_towers());
  const auto refusal = [&](const json& image, int status) {
    return error_of(tasked.post("/v1/embeddings", {{"input", json::array({"dog", json{{"image", image}}})}}), status);
  };
  EXPECT_THAT(message_of(refusal("https://example.com/cat.png", 400)), HasSubstr("fetches nothing"));
  EXPECT_THAT(message_of(refusal("not base64!", 400)), HasSubstr("input[1].image"));
  EXPECT_THAT(message_of(refusal(5, 400)), HasSubstr("base64"));
  EXPECT_THAT(message_of(refusal("data:image/png,abc", 400)), HasSubstr("base64"));
  EXPECT_EQ(refusal("aGVsbG8=", 400)["code"], "invalid_image");
  const std::string bomb = png_header(50000, 50000);
  EXPECT_EQ(refusal(base::encode_base64(bomb), 413)["code"], "image_too_large");
  auto can = two_towers();
  can.images.reset();
  TaskTestServer without(can);
  EXPECT_THAT(message_of(error_of(without.post("/v1/embeddings", {{"input", json{{"image", picture()}}}}), 400)),
              HasSubstr("preprocessor_config.json"));
}

}  // namespace
}  // namespace pm::test
