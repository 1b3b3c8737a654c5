// SPDX-License-Identifier: Apache-2.0
// Tests POST /rerank, /tokenize and /detokenize over a real socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/worker/server/support/task_test_server.h"

namespace pm::test {
namespace {

using testing::HasSubstr;

server::Capabilities cross_encoder(const std::string& activation = "Sigmoid") {
  auto can = capabilities_of("classify");
  can.labels = {"LABEL_0"};
  can.rank_activation = activation;
  return can;
}

/// The score of a row is the first id of its second text minus 7: "dog" ranks above "sat", which ranks above "cat".
Arrays score_documents(const engine::ForwardRequest& request) {
  const auto& shape = request.inputs.at("input_ids").shape;
  const auto& ids = ids_of(request);
  std::vector<float> scores;
  for (int64_t r = 0; r < shape[0]; ++r) {
    const auto row = ids.begin() + r * shape[1];
    scores.push_back(
        static_cast<float>(*(std::find(row, row + shape[1], int64_t{separator_id}) + 1) - int64_t{sat_id}));
  }
  return {{"logits", floats({shape[0], 1}, scores)}};
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

const json rerank_request = {{"query", "the"}, {"documents", {"cat", "dog", "sat"}}};

json with(json body, const char* name, const json& value) {
  body[name] = value;
  return body;
}

TEST(Rerank, ACrossEncoderScoresPairsBySigmoid) {
  TaskTestServer tasked(cross_encoder());
  tasked.engine.answer_forward(score_documents);
  for (const char* path : {"/rerank", "/v1/rerank"}) {
    const auto answer = tasked.ask(path, rerank_request);
    ASSERT_EQ(answer["results"].size(), 3u);
    const std::vector<std::pair<int, double>> wanted{
        {1, sigmoid(dog_id - sat_id)}, {2, sigmoid(0)}, {0, sigmoid(cat_id - sat_id)}};
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(answer["results"][i]["index"], wanted[i].first);
      EXPECT_NEAR(answer["results"][i]["relevance_score"].get<double>(), wanted[i].second, 1e-9);
      EXPECT_FALSE(answer["results"][i].contains("document"));
    }
    EXPECT_EQ(answer["model"], "org/tiny");
    EXPECT_EQ(answer["usage"]["total_tokens"], 15) << "[CLS] the [SEP] cat [SEP], three times";
  }
  EXPECT_EQ(ids_of(tasked.engine.forward_requests()[0]),
            (std::vector<int64_t>{class_id, the_id, separator_id, cat_id, separator_id, class_id, the_id, separator_id,
                                  dog_id, separator_id, class_id, the_id, separator_id, sat_id, separator_id}));
}

TEST(Rerank, AsManyAsAskedForWithTheirTextsWhereAskedFor) {
  TaskTestServer tasked(cross_encoder());
  tasked.engine.answer_forward(score_documents);
  auto body = with(with(rerank_request, "top_n", 2), "return_documents", true);
  body["documents"][1] = {{"text", "dog"}};
  const auto results = tasked.ask("/rerank", body)["results"];
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0]["document"], json({{"text", "dog"}}));
  EXPECT_EQ(results[1]["document"], json({{"text", "sat"}}));
}

TEST(Rerank, TheCheckpointsActivationDecides) {
  TaskTestServer raw(cross_encoder("Identity"));
  raw.engine.answer_forward(score_documents);
  EXPECT_EQ(raw.ask("/rerank", rerank_request)["results"][2]["relevance_score"], cat_id - sat_id);
  TaskTestServer odd(cross_encoder("Tanh"));
  EXPECT_THAT(error_of(odd.post("/rerank", rerank_request), 400)["message"].get<std::string>(), HasSubstr("Tanh"));
}

TEST(Rerank, AnEmbeddingModelRanksByCosine) {
  TaskTestServer tasked(embedding_capabilities());
  tasked.engine.answer_forward(
      [](const engine::ForwardRequest& request) {  // the embeddings of "the" and "dog" have the same direction
        return Arrays{{"last_hidden_state", per_token(request, 2, [](int64_t id, int64_t i) {
                         return id == the_id || id == dog_id ? static_cast<float>(i == 0)
                                : id >= the_id               ? static_cast<float>(i == 1)
                                                             : 0.F;
                       })}};
      });
  const auto results = tasked.ask("/rerank", rerank_request)["results"];
  EXPECT_EQ(results[0]["index"], 1);
  EXPECT_NEAR(results[0]["relevance_score"].get<double>(), 1, 1e-6);
  EXPECT_EQ(results[1]["index"], 0) << "documents with equal scores stay in the order of the request";
  EXPECT_NEAR(results[1]["relevance_score"].get<double>(), 0, 1e-6);
}

TEST(Rerank, OthersAreRefusedByName) {
  auto three = capabilities_of("classify");
  three.labels = {"a", "b", "c"};
  for (const auto& can : {three, capabilities_of("fill-mask"), capabilities_of("generate")}) {
    TaskTestServer tasked(can);
    const auto error = error_of(tasked.post("/rerank", rerank_request), 404);
    EXPECT_EQ(error["code"], "not_served");
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(can.architecture));
  }
}

TEST(Rerank, WhatIsWrongIsNamed) {
  TaskTestServer tasked(cross_encoder());
  tasked.engine.answer_forward(score_documents);
  const auto param = [&](const json& body, int status) {
    return error_of(tasked.post("/rerank", body), status)["param"];
  };
  EXPECT_EQ(param({{"documents", {"a"}}}, 400), "query");
  EXPECT_EQ(param({{"query", "a"}}, 400), "documents");
  EXPECT_EQ(param(with(rerank_request, "documents", json::array()), 400), "documents");
  EXPECT_EQ(param(with(rerank_request, "documents", {"a", 5}), 400), "documents[1]");
  EXPECT_EQ(param(with(rerank_request, "documents", {{{"title", "a"}}}), 400), "documents[0].title");
  EXPECT_EQ(param(with(rerank_request, "top_n", 0), 400), "top_n");
  EXPECT_EQ(param(with(rerank_request, "documents", std::vector<std::string>(3000, "a")), 413), "documents");
  std::string words;
  for (int i = 0; i < 40; ++i) words += "cat ";
  EXPECT_EQ(param(with(rerank_request, "documents", {"cat", words}), 413), "documents[1]");
  EXPECT_EQ(tasked.ask("/rerank", with(with(rerank_request, "documents", {"cat", words}), "truncate", true))["results"]
                .size(),
            2u);
}

TEST(Tokenize, IdsCountAndSpellings) {
  TaskTestServer tasked(cross_encoder());
  EXPECT_EQ(tasked.ask("/tokenize", {{"prompt", "the cat"}}),
            json({{"tokens", {class_id, the_id, cat_id, separator_id}},
                  {"count", 4},
                  {"max_model_len", 16},
                  {"token_strs", nullptr}}));
  EXPECT_EQ(
      tasked.ask("/tokenize", {{"prompt", "the cat"}, {"add_special_tokens", false}, {"return_token_strs", true}}),
      json({{"tokens", {the_id, cat_id}}, {"count", 2}, {"max_model_len", 16}, {"token_strs", {"the", "cat"}}}));
  EXPECT_EQ(tasked.ask("/tokenize", {{"prompt", ""}, {"add_special_tokens", false}})["count"], 0);
  EXPECT_EQ(error_of(tasked.post("/tokenize", {{"prompt", 5}}), 400)["param"], "prompt");
  EXPECT_EQ(error_of(tasked.post("/tokenize", {{"messages", json::array()}}), 400)["param"], "prompt");
}

TEST(Tokenize, TextOfIds) {
  TaskTestServer tasked(cross_encoder());
  EXPECT_EQ(tasked.ask("/detokenize", {{"tokens", {class_id, the_id, cat_id}}}), json({{"prompt", "[CLS] the cat"}}));
  EXPECT_EQ(tasked.ask("/detokenize", {{"tokens", {the_id, 100000, INT32_MAX}}})["prompt"], "the");
  EXPECT_EQ(tasked.ask("/detokenize", {{"tokens", json::array()}})["prompt"], "");
  EXPECT_EQ(error_of(tasked.post("/detokenize", {{"tokens", {1, -1}}}), 400)["param"], "tokens[1]");
  EXPECT_EQ(error_of(tasked.post("/detokenize", {{"tokens", {1, int64_t{1} << 40}}}), 400)["param"], "tokens[1]");
  EXPECT_EQ(error_of(tasked.post("/detokenize", {{"tokens", "5"}}), 400)["param"], "tokens");
}

TEST(Tokenize, AModelWithoutATokenizerSaysSo) {
  TaskTestServer tasked(cross_encoder(), false);
  for (const auto& [path, body] :
       std::map<std::string, json>{{"/tokenize", {{"prompt", "a"}}}, {"/detokenize", {{"tokens", {1}}}}})
    EXPECT_EQ(error_of(tasked.post(path, body), 400)["code"], "no_tokenizer");
}

TEST(Version, IsThatOfTheProgram) {
  TaskTestServer tasked(cross_encoder());
  EXPECT_THAT(json::parse(tasked.client().Get("/version")->body)["version"].get<std::string>(),
              testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
}

}  // namespace
}  // namespace pm::test
