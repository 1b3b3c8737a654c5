// POST /forward, and what all routes over passes have in common: other tasks, full queues, lost ranks, gone clients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "tests/unit/worker/server/tasked.h"
#include "worker/server/numbers.h"
#include "worker/server/tensors.h"

namespace pm::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string message_of(const json& error) { return error.value("message", ""); }

/// Its inputs, doubled.
Arrays twice(const engine::ForwardRequest& request) {
  return {{"logits", per_token(request, 1, [](int64_t id, int64_t) { return static_cast<float>(2 * id) + 0.5f; })}};
}

TEST(Forward, TensorsGoInAndOutAsNestedLists) {
  Tasked tasked(abilities_of("classify"));
  tasked.engine.answer_passes(twice);
  const auto answer = tasked.ask("/forward", json::parse(R"({"inputs": {"input_ids": [[1, 2, 3], [4, 5, 6]], "attention_mask": [[1, 1, 1], [1, 1, 0]]}, "hidden_states": true, "outputs": "logits"})"));
  EXPECT_EQ(answer, json::parse(R"({"outputs": {"logits": {"dtype": "float32", "shape": [2, 3, 1], "data": [[[2.5], [4.5], [6.5]], [[8.5], [10.5], [12.5]]]}}})"));
  const auto pass = tasked.engine.passes_seen().at(0);
  EXPECT_TRUE(pass.hidden_states);
  EXPECT_FALSE(pass.attentions);
  EXPECT_EQ(pass.outputs, std::vector<std::string>{"logits"});
  EXPECT_EQ(pass.inputs.at("input_ids"), (Array{{2, 3}, std::vector<int64_t>{1, 2, 3, 4, 5, 6}}));
}

TEST(Forward, PixelsAreFloatsEvenWhenWritten1) {
  auto can = abilities_of("classify-images");
  can.takes_images = true;
  Tasked tasked(can);
  tasked.engine.answer_passes([](const auto&) { return Arrays{{"logits", floats({1, 1}, {1})}}; });
  tasked.ask("/forward", json::parse(R"({"inputs": {"pixel_values": [[[[1, 2], [3, 4]]]]}})"));
  EXPECT_EQ(tasked.engine.passes_seen()[0].inputs.at("pixel_values"), floats({1, 1, 2, 2}, {1, 2, 3, 4}));
}

TEST(Forward, SafetensorsGoInAndOut) {
  Tasked tasked(abilities_of("classify"));
  tasked.engine.answer_passes(twice);
  const Arrays inputs{{"input_ids", {{1, 2}, std::vector<int64_t>{7, 8}}}};
  const auto result = tasked.client().Post("/forward?attentions=true&outputs=logits,", {{"Accept", "application/octet-stream"}}, server::to_safetensors(inputs), "application/octet-stream");
  ASSERT_TRUE(result);
  ASSERT_EQ(result->status, 200) << result->body;
  EXPECT_EQ(result->get_header_value("Content-Type"), "application/octet-stream");
  EXPECT_EQ(server::from_safetensors(result->body), (Arrays{{"logits", floats({1, 2, 1}, {14.5, 16.5})}}));
  EXPECT_TRUE(tasked.engine.passes_seen()[0].attentions);
  const auto broken = tasked.client().Post("/forward", server::to_safetensors(inputs).substr(0, 60), "application/octet-stream");
  EXPECT_EQ(error_of(broken, 400)["code"], "invalid_safetensors");
  const auto query = tasked.client().Post("/forward?depth=3", server::to_safetensors(inputs), "application/octet-stream");
  EXPECT_THAT(message_of(error_of(query, 400)), AllOf(HasSubstr("depth"), HasSubstr("hidden_states")));
}

TEST(Forward, WrongTensorsAreRefusedByName) {
  Tasked tasked(abilities_of("classify"));
  tasked.engine.answer_passes(twice);
  const auto message = [&](const json& inputs, int status = 400) { return message_of(error_of(tasked.post("/forward", {{"inputs", inputs}}), status)); };
  EXPECT_THAT(message("text"), HasSubstr("inputs is \"text\""));
  EXPECT_THAT(message(json::object()), HasSubstr("inputs is an object of 0"));
  EXPECT_THAT(message(json::parse(R"({"input_ids": 1})")), HasSubstr("inputs.input_ids is 1"));
  EXPECT_THAT(message(json::parse(R"({"input_ids": [[1, 2], [3]]})")), AllOf(HasSubstr("inputs.input_ids[1] has 1"), HasSubstr("have 2")));
  EXPECT_THAT(message(json::parse(R"({"input_ids": [[1, "a"]]})")), HasSubstr("\"a\""));
  EXPECT_THAT(message(json::parse(R"({"input_ids": [[1, 2], 3]})")), HasSubstr("inputs.input_ids[1] is 3"));
  EXPECT_THAT(message(json::parse(R"({"input_ids": []})")), HasSubstr("empty list"));
  EXPECT_THAT(message({{"input_ids", json::array({std::vector<int>(17, 1)})}}, 413), AllOf(HasSubstr("17 tokens"), HasSubstr("at most 16")));
  EXPECT_THAT(message({{"input_ids", std::vector<std::vector<int>>(2000, std::vector<int>(16, 1))}}, 413), HasSubstr("32000 tokens"));
  EXPECT_THAT(message_of(error_of(tasked.post("/forward", json::parse(R"({"inputs": {"input_ids": [[1]]}, "outputs": ["wings"]})")), 400)), AllOf(HasSubstr("wings"), HasSubstr("logits")));
}

TEST(Forward, OutputsThatWouldFillTheMemoryAreRefusedBefore) {
  auto can = abilities_of("classify");
  can.attentions = 1000;
  can.positions = 64;
  Tasked tasked(can);
  const json body{{"inputs", json{{"input_ids", std::vector<std::vector<int>>(20, std::vector<int>(64, 1))}}}, {"attentions", true}};
  EXPECT_THAT(message_of(error_of(tasked.post("/forward", body), 413)), HasSubstr("81925120 values"));
  EXPECT_TRUE(tasked.engine.passes_seen().empty());
}

TEST(Tensors, ABrokenSafetensorsFileNeverDoesHarm) {
  const std::string file = server::to_safetensors({{"a", floats({2, 2}, {1, 2, 3, 4})}, {"b", {{3}, std::vector<int64_t>{1, 2, 3}}}});
  EXPECT_EQ(server::from_safetensors(file).size(), 2u);
  std::srand(3);
  for (int round = 0; round < 3000; ++round) {
    std::string broken = file.substr(0, static_cast<size_t>(std::rand()) % (file.size() + 1));
    for (int i = 0; i < 2 && !broken.empty(); ++i) broken[static_cast<size_t>(std::rand()) % broken.size()] ^= static_cast<char>(1 << std::rand() % 8);
    try {
      server::from_safetensors(broken);
    } catch (const std::exception&) {
    }
  }
}

TEST(Numbers, Base64GoesBothWays) {
  for (const std::string text : {"", "a", "ab", "abc", "\xff\xfe\x01"}) {
    std::string back;
    EXPECT_TRUE(server::from_base64(server::base64({reinterpret_cast<const uint8_t*>(text.data()), text.size()}), back));
    EXPECT_EQ(back, text);
  }
  std::string bytes;
  EXPECT_TRUE(server::from_base64("_-8 \n=", bytes));
  EXPECT_EQ(bytes, "\xff\xef");
  EXPECT_FALSE(server::from_base64("a", bytes));
  EXPECT_FALSE(server::from_base64("ab*d", bytes));
}

TEST(Tasks, ARouteOfAnotherTaskSaysWhatThisModelServes) {
  Tasked tasked(embedding_abilities());
  for (const char* path : {"/classify", "/fill-mask", "/question-answering", "/v1/completions"}) {
    const auto error = error_of(tasked.post(path, {{"inputs", "a"}}), 404);
    EXPECT_EQ(error["code"], "not_served");
    EXPECT_THAT(message_of(error), AllOf(HasSubstr(path), HasSubstr("TinyForembed of task embed"), HasSubstr("POST /v1/embeddings, POST /similarity, POST /rerank")));
  }
  EXPECT_EQ(error_of(tasked.client().Get("/generate_text/a"), 404)["code"], "not_served");
  const auto card = json::parse(tasked.client().Get("/")->body);
  EXPECT_EQ(card["task"], "embed");
  EXPECT_EQ(card["routes"], json::array({"POST /v1/embeddings", "POST /similarity", "POST /rerank", "POST /v1/rerank", "POST /forward", "POST /tokenize", "POST /detokenize"}));
  EXPECT_EQ(card["max_model_len"], 16);
  EXPECT_EQ(json::parse(tasked.client().Get("/v1/models")->body)["data"][0]["task"], "embed");
}

const json kAsk = json::parse(R"({"inputs": {"input_ids": [[1, 2]]}})");

TEST(Passes, AFullQueueIs429WithRetryAfter) {
  Tasked tasked(abilities_of("classify"));
  tasked.engine.limit_open(0);
  const auto refused = tasked.post("/forward", kAsk);
  EXPECT_EQ(error_of(refused, 429)["code"], "queue_full");
  EXPECT_EQ(refused->get_header_value("Retry-After"), "1");
}

TEST(Passes, ARequestOfManyPassesWaitsForItsOwnWhenTheQueueIsFull) {
  Tasked tasked(embedding_abilities());
  tasked.engine.limit_open(1);
  tasked.engine.answer_passes([](const engine::ForwardRequest& request) { return Arrays{{"last_hidden_state", per_token(request, 2, [](int64_t, int64_t) { return 1.f; })}}; });
  EXPECT_EQ(tasked.ask("/v1/embeddings", {{"input", std::vector<std::string>(1000, "the cat")}})["data"].size(), 1000u);
}

TEST(Passes, ALostRankIs503) {
  Tasked tasked(abilities_of("classify"));
  tasked.engine.hold(true);
  auto open = std::async(std::launch::async, [&] { return tasked.post("/forward", kAsk); });
  ASSERT_TRUE(eventually([&] { return tasked.engine.open() == 1; }));
  tasked.engine.fail("rank 1 died");
  EXPECT_EQ(error_of(open.get(), 503)["code"], "rank_lost");
  EXPECT_EQ(error_of(tasked.post("/forward", kAsk), 503)["code"], "rank_lost");
}

TEST(Passes, StoppingAnswers503AndDrainingWaits) {
  Tasked tasked(abilities_of("classify"));
  tasked.engine.hold(true);
  auto open = std::async(std::launch::async, [&] { return tasked.post("/forward", kAsk); });
  ASSERT_TRUE(eventually([&] { return tasked.engine.open() == 1; }));
  EXPECT_FALSE(tasked.api->drain(std::chrono::milliseconds(100)));
  EXPECT_EQ(error_of(tasked.post("/forward", kAsk), 503)["code"], "draining");
  tasked.api->stop();
  EXPECT_EQ(error_of(open.get(), 503)["code"], "draining");
  EXPECT_EQ(tasked.engine.open(), 0u);
}

TEST(Passes, AClientThatGoesAwayFreesItsPlace) {
  Tasked tasked(abilities_of("classify"));
  tasked.engine.hold(true);
  {
    const std::string body = kAsk.dump();
    RawSocket socket(tasked.api->bound_port());
    socket.send("POST /forward HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    ASSERT_TRUE(eventually([&] { return tasked.engine.open() == 1; }));
  }
  EXPECT_TRUE(eventually([&] { return tasked.engine.open() == 0; }));
  EXPECT_EQ(tasked.engine.cancelled().size(), 1u);
}

TEST(Passes, AnEngineThatBringsNothingIsA500WithoutItsWords) {
  Tasked tasked(embedding_abilities());
  const auto error = error_of(tasked.post("/v1/embeddings", {{"input", "dog"}}), 500);
  EXPECT_EQ(error["code"], "internal_error");
}

TEST(Passes, TheyAreCounted) {
  Tasked tasked(abilities_of("classify"));
  tasked.engine.answer_passes(twice);
  tasked.ask("/forward", kAsk);
  EXPECT_THAT(tasked.client().Get("/metrics")->body, HasSubstr("parallelmodel_requests_finished_total{reason=\"stop\"} 1"));
}

}  // namespace
}  // namespace pm::test
