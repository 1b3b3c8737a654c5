// SPDX-License-Identifier: Apache-2.0
// Tests texts with entities at POST /forward.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/server/support/task_test_server.h"

namespace pm::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// A server of a model with entities, whose checkpoint has no files beside the tokenizer's.
struct EntityServer {
  EntityServer()
      : titles({}, word_tokenizer()),
        tasked(with_entities(), true, [&](server::ApiOptions& options) { options.entity_tokenizer = &titles; }) {
    tasked.engine.answer_forward([](const auto&) { return Arrays{{"logits", floats({1, 1}, {1})}}; });
  }
  static server::Capabilities with_entities() {
    auto can = capabilities_of("forward");
    can.entities = "entity_ids";
    can.mentions = "entity_position_ids";
    return can;
  }
  json refusal(const json& body, int status) const {
    const auto reply = tasked.post("/forward", body);
    EXPECT_EQ(reply->status, status) << reply->body;
    return json::parse(reply->body)["error"];
  }

  EntityTokenizer titles;
  TaskTestServer tasked;
};

TEST(EntityInputs, ATextAndItsSpansBecomeTensors) {
  EntityServer server;
  server.tasked.ask("/forward", json::parse(R"({"text": "the cat sat", "entity_spans": [[4, 7], [0, 11]],
                                                "entities": ["[MASK2]", "Felix"]})"));
  const Arrays inputs = server.tasked.engine.forward_requests().at(0).inputs;
  const std::vector<int64_t> ids{class_id, the_id, cat_id, sat_id, separator_id};
  EXPECT_EQ(inputs.at("input_ids"), (Array{{1, 5}, ids}));
  EXPECT_EQ(inputs.at("entity_ids"), (Array{{1, 2}, std::vector<int64_t>{3, 0}}));
  std::vector<int64_t> mentions(60, -1);
  mentions[0] = 2;
  for (int64_t i = 0; i < 3; ++i) mentions[static_cast<size_t>(30 + i)] = 1 + i;
  EXPECT_EQ(inputs.at("entity_position_ids"), (Array{{1, 2, 30}, mentions}));
  EXPECT_EQ(inputs.size(), 3u);
}

TEST(EntityInputs, ALongTextIsRefusedOrCut) {
  EntityServer server;
  std::string text = "cat";
  for (int i = 0; i < 20; ++i) text += " the";
  const json body{{"text", text}, {"entity_spans", {{0, 3}, {80, 83}}}};
  EXPECT_EQ(server.refusal(body, 413)["code"], "context_length_exceeded");
  json cut = body;
  cut["truncate"] = true;
  server.tasked.ask("/forward", cut);
  const Arrays inputs = server.tasked.engine.forward_requests().at(0).inputs;
  EXPECT_EQ(inputs.at("input_ids").shape, (std::vector<int64_t>{1, 16}));
  EXPECT_EQ(inputs.at("entity_ids").shape, (std::vector<int64_t>{1, 1}));
}

TEST(EntityInputs, WhatIsWrongIsRefusedByName) {
  EntityServer server;
  const auto message = [&](const char* body) { return server.refusal(json::parse(body), 400).value("message", ""); };
  EXPECT_THAT(message(R"({"text": "cat"})"), HasSubstr("entity_spans is missing"));
  EXPECT_THAT(message(R"({"text": "cat", "entity_spans": 3})"), AllOf(HasSubstr("is 3"), HasSubstr("[[0, 7]")));
  EXPECT_THAT(message(R"({"text": "cat", "entity_spans": [[0]]})"), HasSubstr("entity_spans[0]"));
  EXPECT_THAT(message(R"({"text": "cat", "entity_spans": [[0, -1]]})"), HasSubstr("entity_spans[0][1] is -1"));
  EXPECT_THAT(message(R"({"text": "cat", "entity_spans": [[0, 4]]})"), HasSubstr("3 characters"));
  EXPECT_THAT(message(R"({"text": "cat", "entity_spans": [[2, 2]]})"), HasSubstr("start below end"));
  EXPECT_THAT(message(R"({"text": "", "entity_spans": [[0, 1]]})"), HasSubstr("text is"));
  EXPECT_THAT(message(R"({"text": "cat", "entity_spans": [[0, 1]], "entities": ["a", "b"]})"), HasSubstr("2 titles"));
  EXPECT_THAT(message(R"({"text": "cat", "entity_spans": [[0, 1]], "inputs": {"input_ids": [[1]]}})"),
              HasSubstr("inputs stand beside text"));
  const json many{{"text", "cat"}, {"entity_spans", json::array_t(2049, json{0, 1})}};
  EXPECT_EQ(server.refusal(many, 413)["code"], "too_many_inputs");
}

TEST(EntityInputs, AModelWithoutEntitiesKnowsNoText) {
  TaskTestServer tasked(capabilities_of("forward"));
  const auto reply = tasked.post("/forward", json::parse(R"({"text": "cat", "entity_spans": [[0, 1]]})"));
  EXPECT_EQ(reply->status, 400);
  EXPECT_THAT(reply->body, HasSubstr("inputs is missing"));
}

}  // namespace
}  // namespace pm::test
