// SPDX-License-Identifier: Apache-2.0
// Tests which constraints the routes read, and what of them reaches the engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/server/support/api_test_server.h"
#include "tests/unit/worker/server/support/events.h"

namespace pm::test {
namespace {

using testing::HasSubstr;

httplib::Result post(const ApiTestServer& served, json body) {
  body["prompt"] = "ab";
  body["max_tokens"] = 1;
  return served.client().Post("/v1/completions", body.dump(), "application/json");
}

json format(const json& schema) {
  return {{"response_format", {{"type", "json_schema"}, {"json_schema", {{"name", "a"}, {"schema", schema}}}}}};
}

TEST(Constraint, EveryFormReachesTheEngineWithItsMask) {
  ApiTestServer served;
  const std::vector<std::pair<json, std::string>> forms{
      {{{"response_format", {{"type", "json_object"}}}}, "{"},
      {format({{"const", 7}}), "7"},
      {{{"structured_outputs", {{"json", {{"type", "null"}}}}}}, "n"},
      {{{"structured_outputs", {{"json", R"({"type": "array"})"}}}}, "["},
      {{{"structured_outputs", {{"json_object", true}}}}, "{"},
      {{{"structured_outputs", {{"regex", "x+"}}}}, "x"},
      {{{"structured_outputs", {{"choice", {"yes"}}}}}, "y"},
      {{{"structured_outputs", {{"grammar", "start: \"g\""}}}}, "g"}};
  for (const auto& [form, first] : forms) {
    ASSERT_EQ(post(served, form)->status, 200) << form;
    const auto constraint = served.engine.submitted_requests().back().constraint;
    ASSERT_TRUE(constraint) << form;
    const engine::TokenMask mask = constraint->fork()->next();
    EXPECT_TRUE(mask.allows(static_cast<unsigned char>(first[0]))) << form;
    EXPECT_FALSE(mask.allows('?')) << form;
  }
  for (const json& form : {json::object(), json{{"response_format", {{"type", "text"}}}},
                           json{{"response_format", nullptr}, {"structured_outputs", nullptr}}}) {
    ASSERT_EQ(post(served, form)->status, 200) << form;
    EXPECT_FALSE(served.engine.submitted_requests().back().constraint) << form;
  }
}

TEST(Constraint, WhatCannotBeHeldReachesNoEngine) {
  ApiTestServer served;
  const auto refusal = [&](const json& form, const std::string& param) -> std::string {
    const json error = error_of(post(served, form), 400);
    EXPECT_EQ(error["param"], param) << form;
    return error["message"];
  };
  const auto outputs = [](const json& value) { return json{{"structured_outputs", value}}; };
  const std::string schema = "response_format.json_schema.schema";
  EXPECT_THAT(refusal(format({{"not", json::object()}}), schema), HasSubstr("Unimplemented keys"));
  refusal(format(true), schema);
  refusal({{"response_format", {{"type", "json_schema"}}}}, "response_format.json_schema");
  refusal({{"response_format", {{"type", "text"}, {"schema", 1}}}}, "response_format.schema");
  refusal({{"response_format", "json"}}, "response_format");
  refusal(outputs({{"regex", "("}}), "structured_outputs.regex");
  refusal(outputs({{"choice", {"a", ""}}}), "structured_outputs.choice");
  refusal(outputs({{"grammar", ""}}), "structured_outputs.grammar");
  refusal(outputs({{"regex", std::string(200'000, 'a')}}), "structured_outputs.regex");
  refusal(outputs({{"regex", "a"}, {"choice", {"a"}}}), "structured_outputs");
  refusal(outputs(json::object()), "structured_outputs");
  refusal({{"response_format", {{"type", "json_object"}}}, {"structured_outputs", {{"regex", "a"}}}},
          "structured_outputs");
  EXPECT_TRUE(served.engine.submitted_requests().empty());
}

}  // namespace
}  // namespace pm::test
