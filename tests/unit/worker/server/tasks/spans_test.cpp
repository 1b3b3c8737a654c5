// SPDX-License-Identifier: Apache-2.0
// Tests POST /fill-mask and POST /question-answering over a real socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/server/support/task_test_server.h"

namespace pm::test {
namespace {

using testing::HasSubstr;

std::string message_of(const json& error) { return error.value("message", ""); }

server::Capabilities masks() {
  auto can = capabilities_of("fill-mask");
  can.vocabulary_scores = "prediction_logits";
  return can;
}

/// Tokens with higher ids are more probable, except for padding.
Arrays by_id(const engine::ForwardRequest& request) {
  return {{"prediction_logits", per_token(request, 12, [](int64_t, int64_t i) { return static_cast<float>(i); })}};
}

TEST(FillMask, GuessesAreRankedWithTheWholeSentence) {
  TaskTestServer tasked(masks());
  tasked.engine.answer_forward(by_id);
  const auto guesses = tasked.ask("/fill-mask", {{"inputs", "the [MASK] sat"}});
  ASSERT_EQ(guesses.size(), 5u);
  EXPECT_EQ(guesses[0]["token"], smith_id);
  EXPECT_EQ(guesses[0]["token_str"], "Smith");
  EXPECT_EQ(guesses[0]["sequence"], "the Smith sat");
  EXPECT_GT(guesses[0]["score"], guesses[1]["score"]);
  const auto some = tasked.ask(
      "/fill-mask",
      {{"inputs", json::array({"the [MASK] sat"})}, {"targets", json::array({"cat", "dog"})}, {"top_k", 10}});
  ASSERT_EQ(some[0].size(), 2u);
  EXPECT_EQ(some[0][0]["token_str"], "dog");
}

TEST(FillMask, SeveralMasksGetListsAndStayVisible) {
  TaskTestServer tasked(masks());
  tasked.engine.answer_forward(by_id);
  const auto both = tasked.ask("/fill-mask", {{"inputs", "[MASK] cat [MASK]"}, {"top_k", 2}});
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].size(), 2u);
  EXPECT_EQ(both[1][0]["sequence"], "[CLS] [MASK] cat Smith [SEP]");
}

TEST(FillMask, ATextWithoutTheMaskIsRefusedWithItsSpelling) {
  TaskTestServer tasked(masks());
  EXPECT_THAT(message_of(error_of(tasked.post("/fill-mask", {{"inputs", json::array({"[MASK]", "the cat"})}}), 400)),
              testing::AllOf(HasSubstr("inputs[1]"), HasSubstr("[MASK]")));
  TaskTestServer without(masks(), false);
  EXPECT_EQ(error_of(without.post("/fill-mask", {{"inputs", "[MASK]"}}), 400)["code"], "no_tokenizer");
  EXPECT_TRUE(tasked.engine.forward_requests().empty());
}

/// The answer starts at "Anna" and ends at "Smith".
Arrays anna_smith(const engine::ForwardRequest& request) {
  auto shape = request.inputs.at("input_ids").shape;
  std::vector<float> start, end;
  for (int64_t id : ids_of(request)) {
    start.push_back(id == anna_id ? 9.f : 0.f);
    end.push_back(id == smith_id ? 9.f : 0.f);
  }
  return {{"start_logits", floats(shape, start)}, {"end_logits", floats(shape, end)}};
}

TEST(QuestionAnswering, TheAnswerIsASpanOfTheContextInCharacters) {
  TaskTestServer tasked(capabilities_of("question-answering"));
  tasked.engine.answer_forward(anna_smith);
  const auto answer =
      tasked.ask("/question-answering", {{"question", "Anna ran"}, {"context", "é the dog Anna Smith sat"}});
  EXPECT_EQ(answer["answer"], "Anna Smith");
  EXPECT_EQ(answer["start"], 10);
  EXPECT_EQ(answer["end"], 20);
  EXPECT_GT(answer["score"].get<double>(), 0.99);
  EXPECT_EQ(tasked.ask("/question-answering",
                       {{"inputs", json{{"question", "Anna ran"}, {"context", "é the dog Anna Smith sat"}}}}),
            answer);
  const auto several =
      tasked.ask("/question-answering", {{"question", "Anna"}, {"context", "Anna Smith sat"}, {"top_k", 3}});
  EXPECT_EQ(several.size(), 3u);
  EXPECT_NE(tasked.ask("/question-answering",
                       {{"question", "ran"}, {"context", "Anna Smith sat"}, {"max_answer_len", 1}})["answer"],
            "Anna Smith");
}

TEST(QuestionAnswering, ALongContextIsReadInWindowsThatOverlap) {
  TaskTestServer tasked(capabilities_of("question-answering"));
  tasked.engine.answer_forward(anna_smith);
  std::string context;
  for (int i = 0; i < 37; ++i) context += "cat ";
  const auto answer = tasked.ask("/question-answering", {{"question", "ran"}, {"context", context + "Anna Smith sat"}});
  EXPECT_EQ(answer["answer"], "Anna Smith");
  EXPECT_EQ(answer["start"], context.size());
  const auto forwards = tasked.engine.forward_requests();
  ASSERT_FALSE(forwards.empty());
  EXPECT_EQ(forwards[0].inputs.at("input_ids").shape[1], 16);
  // 40 tokens in windows of 12 that share 8
  EXPECT_EQ(forwards[0].inputs.at("input_ids").shape[0], 8);
}

TEST(QuestionAnswering, WhatLeavesNoRoomIsRefused) {
  TaskTestServer tasked(capabilities_of("question-answering"));
  std::string question = "the";
  for (int i = 0; i < 20; ++i) question += " cat";
  EXPECT_EQ(error_of(tasked.post("/question-answering", {{"question", question}, {"context", "Anna"}}), 413)["param"],
            "question");
  EXPECT_THAT(message_of(error_of(tasked.post("/question-answering", {{"question", "ran"}}), 400)),
              HasSubstr("context is missing"));
  EXPECT_THAT(message_of(error_of(tasked.post("/question-answering", {{"question", "ran"}, {"context", " "}}), 400)),
              HasSubstr("at least one token"));
  EXPECT_EQ(
      error_of(tasked.post("/question-answering", {{"question", "ran"}, {"context", std::string(600 << 10, 'a')}}),
               413)["param"],
      "context");
  std::string context;
  for (int i = 0; i < 30; ++i) context += "cat ";
  EXPECT_THAT(
      message_of(error_of(
          tasked.post("/question-answering", {{"question", "ran"}, {"context", context}, {"doc_stride", 12}}), 400)),
      HasSubstr("below 12"));
}

TEST(QuestionAnswering, NoAnswerMayBeAnAnswer) {
  TaskTestServer tasked(capabilities_of("question-answering"));
  tasked.engine.answer_forward([](const engine::ForwardRequest& request) {
    const auto shape = request.inputs.at("input_ids").shape;
    std::vector<float> logits;
    for (int64_t id : ids_of(request)) logits.push_back(id == class_id ? 9.f : 0.f);
    return Arrays{{"start_logits", floats(shape, logits)}, {"end_logits", floats(shape, logits)}};
  });
  json body{{"question", "ran"}, {"context", "Anna Smith"}};
  EXPECT_NE(tasked.ask("/question-answering", body)["answer"], "");
  body["handle_impossible_answer"] = true;
  EXPECT_EQ(tasked.ask("/question-answering", body)["answer"], "");
}

}  // namespace
}  // namespace pm::test
