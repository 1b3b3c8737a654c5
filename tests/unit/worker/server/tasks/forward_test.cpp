// SPDX-License-Identifier: Apache-2.0
// Tests POST /forward and the behaviour that all task routes share: models of other tasks, full queues, lost ranks and
// disconnected clients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "tests/unit/worker/server/support/task_test_server.h"
#include "worker/server/http/tensor_codec.h"

namespace pm::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string message_of(const json& error) { return error.value("message", ""); }

/// Returns the inputs, doubled.
Arrays twice(const engine::ForwardRequest& request) {
  return {{"logits", per_token(request, 1, [](int64_t id, int64_t) { return static_cast<float>(2 * id) + 0.5f; })}};
}

TEST(Forward, TensorsAreNestedListsInRequestAndReply) {
  TaskTestServer tasked(capabilities_of("classify"));
  tasked.engine.answer_forward(twice);
  const auto answer = tasked.ask(
      "/forward",
      json::parse(
          R"({"inputs": {"input_ids": [[1, 2, 3], [4, 5, 6]], "attention_mask": [[1, 1, 1], [1, 1, 0]]}, "hidden_states": true, "outputs": "logits"})"));
  EXPECT_EQ(
      answer,
      json::parse(
          R"({"outputs": {"logits": {"dtype": "float32", "shape": [2, 3, 1], "data": [[[2.5], [4.5], [6.5]], [[8.5], [10.5], [12.5]]]}}})"));
  const auto forward = tasked.engine.forward_requests().at(0);
  EXPECT_TRUE(forward.hidden_states);
  EXPECT_FALSE(forward.attentions);
  EXPECT_EQ(forward.outputs, std::vector<std::string>{"logits"});
  EXPECT_EQ(forward.inputs.at("input_ids"), (Array{{2, 3}, std::vector<int64_t>{1, 2, 3, 4, 5, 6}}));
}

TEST(Forward, IntegerPixelsBecomeFloats) {
  auto can = capabilities_of("classify-images");
  can.takes_images = true;
  TaskTestServer tasked(can);
  tasked.engine.answer_forward([](const auto&) { return Arrays{{"logits", floats({1, 1}, {1})}}; });
  tasked.ask("/forward", json::parse(R"({"inputs": {"pixel_values": [[[[1, 2], [3, 4]]]]}})"));
  EXPECT_EQ(tasked.engine.forward_requests()[0].inputs.at("pixel_values"), floats({1, 1, 2, 2}, {1, 2, 3, 4}));
}

TEST(Forward, SafetensorsInRequestAndReply) {
  TaskTestServer tasked(capabilities_of("classify"));
  tasked.engine.answer_forward(twice);
  const Arrays inputs{{"input_ids", {{1, 2}, std::vector<int64_t>{7, 8}}}};
  const auto result =
      tasked.client().Post("/forward?attentions=true&outputs=logits,", {{"Accept", "application/octet-stream"}},
                           server::to_safetensors(inputs), "application/octet-stream");
  ASSERT_TRUE(result);
  ASSERT_EQ(result->status, 200) << result->body;
  EXPECT_EQ(result->get_header_value("Content-Type"), "application/octet-stream");
  EXPECT_EQ(server::from_safetensors(result->body), (Arrays{{"logits", floats({1, 2, 1}, {14.5, 16.5})}}));
  EXPECT_TRUE(tasked.engine.forward_requests()[0].attentions);
  const auto broken =
      tasked.client().Post("/forward", server::to_safetensors(inputs).substr(0, 60), "application/octet-stream");
  EXPECT_EQ(error_of(broken, 400)["code"], "invalid_safetensors");
  const auto query =
      tasked.client().Post("/forward?depth=3", server::to_safetensors(inputs), "application/octet-stream");
  EXPECT_THAT(message_of(error_of(query, 400)), AllOf(HasSubstr("depth"), HasSubstr("hidden_states")));
}

TEST(Forward, InvalidTensorsAreRefusedByName) {
  TaskTestServer tasked(capabilities_of("classify"));
  tasked.engine.answer_forward(twice);
  const auto message = [&](const json& inputs, int status = 400) {
    return message_of(error_of(tasked.post("/forward", {{"inputs", inputs}}), status));
  };
  EXPECT_THAT(message("text"), HasSubstr("inputs is \"text\""));
  EXPECT_THAT(message(json::object()), HasSubstr("inputs is an object of 0"));
  EXPECT_THAT(message(json::parse(R"({"input_ids": 1})")), HasSubstr("inputs.input_ids is 1"));
  EXPECT_THAT(message(json::parse(R"({"input_ids": [[1, 2], [3]]})")),
              AllOf(HasSubstr("inputs.input_ids[1] has 1"), HasSubstr("have 2")));
  EXPECT_THAT(message(json::parse(R"({"input_ids": [[1, "a"]]})")), HasSubstr("\"a\""));
  EXPECT_THAT(message(json::parse(R"({"input_ids": [[1, 2], 3]})")), HasSubstr("inputs.input_ids[1] is 3"));
  EXPECT_THAT(message(json::parse(R"({"input_ids": []})")), HasSubstr("empty list"));
  EXPECT_THAT(message({{"input_ids", json::array({std::vector<int>(17, 1)})}}, 413),
              AllOf(HasSubstr("17 tokens"), HasSubstr("at most 16")));
  EXPECT_THAT(message({{"input_ids", std::vector<std::vector<int>>(2000, std::vector<int>(16, 1))}}, 413),
              HasSubstr("32000 tokens"));
  EXPECT_THAT(
      message_of(error_of(
          tasked.post("/forward", json::parse(R"({"inputs": {"input_ids": [[1]]}, "outputs": ["wings"]})")), 400)),
      AllOf(HasSubstr("wings"), HasSubstr("logits")));
}

TEST(Forward, OutputsThatAreTooLargeAreRefusedBeforehand) {
  auto can = capabilities_of("classify");
  can.attentions = 1000;
  can.positions = 64;
  TaskTestServer tasked(can);
  const json body{{"inputs", json{{"input_ids", std::vector<std::vector<int>>(20, std::vector<int>(64, 1))}}},
                  {"attentions", true}};
  EXPECT_THAT(message_of(error_of(tasked.post("/forward", body), 413)), HasSubstr("81925120 values"));
  EXPECT_TRUE(tasked.engine.forward_requests().empty());
}

TEST(TensorCodec, AnInvalidSafetensorsFileIsRefused) {
  const std::string file =
      server::to_safetensors({{"a", floats({2, 2}, {1, 2, 3, 4})}, {"b", {{3}, std::vector<int64_t>{1, 2, 3}}}});
  EXPECT_EQ(server::from_safetensors(file).size(), 2u);
  std::srand(3);
  for (int round = 0; round < 3000; ++round) {
    std::string broken = file.substr(0, static_cast<size_t>(std::rand()) % (file.size() + 1));
    for (int i = 0; i < 2 && !broken.empty(); ++i)
      broken[static_cast<size_t>(std::rand()) % broken.size()] ^= static_cast<char>(1 << std::rand() % 8);
    try {
      server::from_safetensors(broken);
    } catch (const std::exception&) {
    }
  }
}

TEST(Tasks, ARouteOfAnotherTaskListsTheServedRoutes) {
  TaskTestServer tasked(embedding_capabilities());
  for (const char* path : {"/classify", "/fill-mask", "/question-answering", "/v1/completions"}) {
    const auto error = error_of(tasked.post(path, {{"inputs", "a"}}), 404);
    EXPECT_EQ(error["code"], "not_served");
    EXPECT_THAT(message_of(error), AllOf(HasSubstr(path), HasSubstr("TinyForembed of task embed"),
                                         HasSubstr("POST /v1/embeddings, POST /similarity, POST /rerank")));
  }
  EXPECT_EQ(error_of(tasked.client().Get("/generate_text/a"), 404)["code"], "not_served");
  const auto card = json::parse(tasked.client().Get("/")->body);
  EXPECT_EQ(card["task"], "embed");
  EXPECT_EQ(card["routes"],
            json::array({"POST /v1/embeddings", "POST /similarity", "POST /rerank", "POST /v1/rerank", "POST /score",
                         "POST /v1/score", "POST /forward", "POST /tokenize", "POST /detokenize"}));
  EXPECT_EQ(card["max_model_len"], 16);
  EXPECT_EQ(json::parse(tasked.client().Get("/v1/models")->body)["data"][0]["task"], "embed");
}

const json forward_request = json::parse(R"({"inputs": {"input_ids": [[1, 2]]}})");

TEST(ForwardRunner, AFullQueueIs429WithRetryAfter) {
  TaskTestServer tasked(capabilities_of("classify"));
  tasked.engine.limit_open(0);
  const auto refused = tasked.post("/forward", forward_request);
  EXPECT_EQ(error_of(refused, 429)["code"], "queue_full");
  EXPECT_EQ(refused->get_header_value("Retry-After"), "1");
}

TEST(ForwardRunner, ARequestOfManyBatchesWaitsForItsOwnWhenTheQueueIsFull) {
  TaskTestServer tasked(embedding_capabilities());
  tasked.engine.limit_open(1);
  tasked.engine.answer_forward([](const engine::ForwardRequest& request) {
    return Arrays{{"last_hidden_state", per_token(request, 2, [](int64_t, int64_t) { return 1.f; })}};
  });
  EXPECT_EQ(tasked.ask("/v1/embeddings", {{"input", std::vector<std::string>(1000, "the cat")}})["data"].size(), 1000u);
}

TEST(ForwardRunner, ALostRankIs503) {
  TaskTestServer tasked(capabilities_of("classify"));
  tasked.engine.hold(true);
  auto open = std::async(std::launch::async, [&] { return tasked.post("/forward", forward_request); });
  ASSERT_TRUE(eventually([&] { return tasked.engine.open() == 1; }));
  tasked.engine.fail("rank 1 died");
  EXPECT_EQ(error_of(open.get(), 503)["code"], "rank_lost");
  EXPECT_EQ(error_of(tasked.post("/forward", forward_request), 503)["code"], "rank_lost");
}

TEST(ForwardRunner, StoppingReplies503AndDrainingWaits) {
  TaskTestServer tasked(capabilities_of("classify"));
  tasked.engine.hold(true);
  auto open = std::async(std::launch::async, [&] { return tasked.post("/forward", forward_request); });
  ASSERT_TRUE(eventually([&] { return tasked.engine.open() == 1; }));
  EXPECT_FALSE(tasked.api->drain(std::chrono::milliseconds(100)));
  EXPECT_EQ(error_of(tasked.post("/forward", forward_request), 503)["code"], "draining");
  tasked.api->stop();
  EXPECT_EQ(error_of(open.get(), 503)["code"], "draining");
  EXPECT_EQ(tasked.engine.open(), 0u);
}

TEST(ForwardRunner, AClientThatGoesAwayFreesItsPlace) {
  TaskTestServer tasked(capabilities_of("classify"));
  tasked.engine.hold(true);
  {
    const std::string body = forward_request.dump();
    RawSocket socket(tasked.api->bound_port());
    socket.send("POST /forward HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
                body);
    ASSERT_TRUE(eventually([&] { return tasked.engine.open() == 1; }));
  }
  EXPECT_TRUE(eventually([&] { return tasked.engine.open() == 0; }));
  EXPECT_EQ(tasked.engine.cancelled().size(), 1u);
}

TEST(ForwardRunner, AnEngineThatBringsNothingIsA500WithoutItsWords) {
  TaskTestServer tasked(embedding_capabilities());
  const auto error = error_of(tasked.post("/v1/embeddings", {{"input", "dog"}}), 500);
  EXPECT_EQ(error["code"], "internal_error");
}

TEST(ForwardRunner, TheyAreCounted) {
  TaskTestServer tasked(capabilities_of("classify"));
  tasked.engine.answer_forward(twice);
  tasked.ask("/forward", forward_request);
  EXPECT_THAT(tasked.client().Get("/metrics")->body,
              HasSubstr("parallelmodel_requests_finished_total{reason=\"stop\"} 1"));
}

}  // namespace
}  // namespace pm::test
