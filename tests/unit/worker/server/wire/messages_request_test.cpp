// SPDX-License-Identifier: Apache-2.0
// Translates requests of Anthropic's Messages API into chat completions.
#include "worker/server/wire/messages_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace pm::server {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using testing::HasSubstr;

json turn(const char* role, const json& content) { return {{"role", role}, {"content", content}}; }
json text(const char* text) { return {{"type", "text"}, {"text", text}}; }

ordered_json chat_of(json body, std::vector<std::string>* unknown = nullptr) {
  if (!body.contains("max_tokens")) body["max_tokens"] = 5;
  if (!body.contains("messages")) body["messages"] = json::array({turn("user", "a")});
  UnknownFields fields(false);
  const MessagesRequest request = parse_messages(body.dump(), false, fields);
  if (unknown) *unknown = fields.names();
  return ordered_json::parse(request.chat);
}

ApiError refused(json body) {
  try {
    chat_of(std::move(body));
  } catch (const ApiError& error) {
    return error;
  }
  ADD_FAILURE() << "accepted";
  return ApiError(0, "", "");
}

TEST(MessagesRequest, ImagesBecomePartsOfAChat) {
  const json file = {{"type", "base64"}, {"media_type", "image/png"}, {"data", "AAAA"}},
             url = {{"type", "url"}, {"url", "file:///pictures/cat.png"}};
  const auto chat =
      chat_of({{"messages", json::array({turn("user", json::array({{{"type", "image"}, {"source", file}},
                                                                   text("and"),
                                                                   {{"type", "image"}, {"source", url}}}))})}});
  const ordered_json& parts = chat["messages"][0]["content"];
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0]["image_url"]["url"], "data:image/png;base64,AAAA");
  EXPECT_EQ(parts[1]["text"], "and");
  EXPECT_EQ(parts[2]["image_url"]["url"], "file:///pictures/cat.png");
  const auto alone =
      chat_of({{"messages", json::array({turn("user", json::array({{{"type", "image"}, {"source", url}}}))})}});
  EXPECT_EQ(alone["messages"][0]["content"].size(), 1u);
}

TEST(MessagesRequest, ALoopOfToolsBecomesMessagesOfAChat) {
  const json input = {{"city", "Zürich"}, {"days", 2}};
  const auto chat = chat_of(
      {{"system", json::array({text("Be brief."), text("Use tools.")})},
       {"messages",
        json::array(
            {turn("user", "Weather?"),
             turn("assistant",
                  json::array({{{"type", "thinking"}, {"thinking", "I need the tool."}, {"signature", ""}},
                               {{"type", "redacted_thinking"}, {"data", "x"}},
                               text("One moment."),
                               {{"type", "tool_use"}, {"id", "t1"}, {"name", "weather"}, {"input", input}},
                               {{"type", "tool_use"}, {"id", "t2"}, {"name", "clock"}, {"input", json::object()}}})),
             turn("user", json::array({{{"type", "tool_result"}, {"tool_use_id", "t1"}, {"content", "sunny"}},
                                       {{"type", "tool_result"},
                                        {"tool_use_id", "t2"},
                                        {"is_error", true},
                                        {"content", json::array({text("no"), text("clock")})}},
                                       text("And?")}))})},
       {"tools", json::array({{{"name", "weather"},
                               {"description", "Weather of a city"},
                               {"input_schema", {{"type", "object"}}},
                               {"cache_control", {{"type", "ephemeral"}}}},
                              {{"type", "custom"}, {"name", "clock"}, {"input_schema", json::object()}}})},
       {"tool_choice", {{"type", "auto"}, {"disable_parallel_tool_use", true}}},
       {"stop_sequences", {"END"}},
       {"temperature", 0.5},
       {"top_k", 3},
       {"top_p", 0.9},
       {"seed", 7},
       {"stream", true},
       {"metadata", {{"user_id", "u"}}}});
  EXPECT_EQ(json(chat["messages"]), json::parse(R"([
    {"role": "system", "content": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Use tools."}]},
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "reasoning_content": "I need the tool.", "content": "One moment.", "tool_calls": [
      {"id": "t1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Zürich", "days": 2}}},
      {"id": "t2", "type": "function", "function": {"name": "clock", "arguments": {}}}]},
    {"role": "tool", "tool_call_id": "t1", "name": "weather", "content": "sunny"},
    {"role": "tool", "tool_call_id": "t2", "name": "clock", "content": "no\nclock"},
    {"role": "user", "content": "And?"}])"));
  EXPECT_EQ(json(chat["tools"]), json::parse(R"([
    {"type": "function", "function": {"name": "weather", "description": "Weather of a city", "parameters": {"type": "object"}}},
    {"type": "function", "function": {"name": "clock", "parameters": {}}}])"));
  EXPECT_EQ(chat["tool_choice"], "auto");
  EXPECT_EQ(chat["parallel_tool_calls"], false);
  EXPECT_EQ(chat["stop"], json({"END"}));
  EXPECT_EQ(chat["temperature"], 0.5);
  EXPECT_EQ(chat["top_k"], 3);
  EXPECT_EQ(chat["seed"], 7);
  EXPECT_EQ(chat["max_completion_tokens"], 5);
  EXPECT_EQ(json(chat["stream_options"]), json({{"include_usage", true}}));
  EXPECT_FALSE(chat.contains("continue_final_message"));
}

TEST(MessagesRequest, KeysOfSchemasAndInputsKeepTheirOrder) {
  const std::string body =
      R"({"max_tokens": 1, "messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f",
      "input": {"z": 1, "a": {"y": 2, "b": 3}}}]}], "tools": [{"name": "f", "input_schema": {"z": 1, "a": {"y": 2, "b": 3}}}]})";
  UnknownFields unknown(true);
  const std::string chat = parse_messages(body, false, unknown).chat;
  EXPECT_THAT(chat, HasSubstr(R"("arguments":{"z":1,"a":{"y":2,"b":3}})"));
  EXPECT_THAT(chat, HasSubstr(R"("parameters":{"z":1,"a":{"y":2,"b":3}})"));
}

TEST(MessagesRequest, TurnsOfOneRoleAreOneMessageAndAnAnswerAtTheEndIsContinued) {
  const auto chat = chat_of({{"messages", json::array({turn("user", "a"), turn("user", json::array({text("b")})),
                                                       turn("assistant", "The answer is")})}});
  EXPECT_EQ(json(chat["messages"]), json::parse(R"([
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    {"role": "assistant", "content": "The answer is"}])"));
  EXPECT_EQ(chat["continue_final_message"], true);
  EXPECT_EQ(chat["add_generation_prompt"], false);
}

TEST(MessagesRequest, ThinkingEffortFormatAndDemandedToolsAreTranslated) {
  EXPECT_EQ(json(chat_of({{"thinking", {{"type", "enabled"}, {"budget_tokens", 2048}}}})["chat_template_kwargs"]),
            json({{"enable_thinking", true}, {"thinking", true}}));
  EXPECT_EQ(json(chat_of({{"thinking", {{"type", "disabled"}}}})["chat_template_kwargs"]),
            json({{"enable_thinking", false}, {"thinking", false}}));
  const auto chat = chat_of(
      {{"output_config", {{"effort", "low"}, {"format", {{"type", "json_schema"}, {"schema", {{"type", "integer"}}}}}}},
       {"tool_choice", {{"type", "any"}}}});
  EXPECT_EQ(chat["reasoning_effort"], "low");
  EXPECT_EQ(json(chat["response_format"]["json_schema"]["schema"]), json({{"type", "integer"}}));
  EXPECT_EQ(chat["tool_choice"], "required");
  EXPECT_EQ(json(chat_of({{"tool_choice", {{"type", "tool"}, {"name", "f"}}}})["tool_choice"]),
            json({{"type", "function"}, {"function", {{"name", "f"}}}}));
}

TEST(MessagesRequest, UnknownFieldsAreNamedWhereverTheyStand) {
  std::vector<std::string> unknown;
  json block = text("a");
  block["x"] = 1;
  chat_of({{"messages", json::array({turn("user", json::array({block}))})}, {"context_management", json::object()}},
          &unknown);
  EXPECT_THAT(unknown, testing::ElementsAre("messages[0].content[0].x", "context_management"));
}

TEST(MessagesRequest, WhatIsWrongIsNamedAsTheClientKnowsIt) {
  const auto of_block = [](const char* role, const json& block) {
    return json{{"messages", json::array({turn("user", "a"), turn(role, json::array({block}))})}};
  };
  const struct {
    json body;
    const char* param;
    const char* message;
  } cases[] = {
      {{{"max_tokens", 0}}, "max_tokens", "from 1"},
      {{{"messages", json::array()}}, "messages", "1 to 2048"},
      {{{"messages", json::array({turn("king", "a")})}}, "messages[0].role", "user, assistant"},
      {{{"messages", json::array({{{"role", "user"}}})}}, "messages[0].content", "missing"},
      {{{"messages", json::array({1})}}, "messages[0]", "role and content"},
      {of_block("user", {{"type", "image"}, {"source", 1}}), "messages[1].content[0].source", "\"base64\" or \"url\""},
      {of_block("user", {{"type", "image"}, {"source", {{"type", "file"}}}}), "messages[1].content[0].source.type",
       "\"base64\" or \"url\""},
      {of_block("assistant", {{"type", "image"}}), "messages[1].content[0].type",
       "images stand in messages of the user"},
      {of_block("user", {{"type", "tool_use"}}), "messages[1].content[0].type", "tool_result"},
      {of_block("assistant", {{"type", "tool_result"}}), "messages[1].content[0].type", "tool_use"},
      {of_block("assistant", {{"type", "tool_use"}, {"id", "1"}, {"name", "f"}, {"input", "{}"}}),
       "messages[1].content[0].input", "an object"},
      {of_block("user", {{"type", "tool_result"}}), "messages[1].content[0].tool_use_id", "missing"},
      {of_block("user", "a"), "messages[1].content[0]", "an object"},
      {{{"system", 5}}, "system", "a text"},
      {{{"tools", json::array({{{"type", "web_search_20250305"}, {"name", "web_search"}}})}},
       "tools[0].type",
       "no tools of its own"},
      {{{"tools", json::array({{{"name", "f"}}})}}, "tools[0].input_schema", "missing"},
      {{{"tool_choice", "auto"}}, "tool_choice", "an object"},
      {{{"tool_choice", {{"type", "some"}}}}, "tool_choice.type", "\"any\""},
      {{{"stop_sequences", {""}}}, "stop_sequences", "none of them empty"},
      {{{"thinking", {{"type", "on"}}}}, "thinking.type", "adaptive"},
      {{{"output_config", {{"format", {{"type", "json"}}}}}}, "output_config.format.type", "json_schema"},
      {{{"output_format", {{"type", "json"}}}}, "output_format.type", "json_schema"},
      {{{"container", "c"}}, "container", "null"},
      {{{"thread", {{"type", "create"}}}}, "thread", "keeps no messages"},
      {{{"mcp_servers", {1}}}, "mcp_servers", "[]"},
  };
  for (const auto& c : cases) {
    const ApiError error = refused(c.body);
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.param, c.param) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(c.message));
  }
  UnknownFields unknown(true);
  EXPECT_THROW(parse_messages(R"({"messages": [{"role": "user", "content": "a"}]})", false, unknown), ApiError);
  EXPECT_NO_THROW(parse_messages(R"({"messages": [{"role": "user", "content": "a"}]})", true, unknown));
}

TEST(FieldNames, TheClientsNamesReplaceWholeWords) {
  const ApiError error = with_own_names(
      ApiError(400, "c", "messages has 3 tokens and max_completion_tokens is 9; xmax_completion_tokens stays",
               "max_completion_tokens"),
      messages_field_names());
  EXPECT_EQ(error.param, "max_tokens");
  EXPECT_STREQ(error.what(), "messages has 3 tokens and max_tokens is 9; xmax_completion_tokens stays");
  EXPECT_EQ(with_own_names(ApiError(400, "c", "m", "response_format.json_schema.schema"), messages_field_names()).param,
            "output_config.format.schema");
}

}  // namespace
}  // namespace pm::server
