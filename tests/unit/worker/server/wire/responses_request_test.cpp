// SPDX-License-Identifier: Apache-2.0
// Translates requests of OpenAI's Responses API into chat completions.
#include "worker/server/wire/responses_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "worker/server/wire/response_store.h"

namespace pm::server {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using testing::HasSubstr;

ResponsesRequest parsed(json body, std::vector<std::string>* unknown = nullptr, const EarlierTurns& earlier = {}) {
  if (!body.contains("input")) body["input"] = "a";
  UnknownFields fields(false);
  auto request = parse_responses(body.dump(), [&](const std::string&) { return earlier; }, fields);
  if (unknown) *unknown = fields.names();
  return request;
}

json chat_of(const json& body) { return json::parse(parsed(body).chat); }

ApiError refused(const json& body) {
  try {
    parsed(body);
  } catch (const ApiError& error) {
    return error;
  }
  ADD_FAILURE() << "accepted: " << body;
  return ApiError(0, "", "");
}

const json loop = json::parse(R"([
  {"role": "user", "content": "Weather?"},
  {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Use tools."}]},
  {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "I need it."}],
   "encrypted_content": null},
  {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
   "content": [{"type": "output_text", "text": "One moment.", "annotations": [], "logprobs": []}]},
  {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "weather", "arguments": "{\"z\":1,\"a\":2}",
   "status": "completed"},
  {"type": "function_call", "call_id": "c2", "name": "clock", "arguments": "{}"},
  {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
  {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "no"},
                                                               {"type": "input_text", "text": "clock"}]}
])");

TEST(ResponsesRequest, ItemsBecomeMessagesOfAChat) {
  const json chat = chat_of({{"input", loop}, {"instructions", "Be brief."}});
  EXPECT_EQ(chat["messages"], json::parse(R"([
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Weather?"},
    {"role": "developer", "content": "Use tools."},
    {"role": "assistant", "reasoning_content": "I need it.", "content": "One moment.", "tool_calls": [
      {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{\"z\":1,\"a\":2}"}},
      {"id": "c2", "type": "function", "function": {"name": "clock", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "c1", "name": "weather", "content": "sunny"},
    {"role": "tool", "tool_call_id": "c2", "name": "clock", "content": "no\nclock"}])"));
}

TEST(ResponsesRequest, MessagesOfUsersStayApartAndTheirEndIsNotContinued) {
  const json chat = chat_of({{"input", json::array({{{"role", "user"}, {"content", "a"}},
                                                    {{"role", "user"}, {"content", "b"}},
                                                    {{"role", "assistant"}, {"content", "c"}}})}});
  EXPECT_EQ(chat["messages"].size(), 3u);
  EXPECT_FALSE(chat.contains("continue_final_message"));
}

TEST(ResponsesRequest, AnEarlierResponseIsContinuedWithoutItsInstructions) {
  const ordered_json earlier = ordered_json::parse(
      R"([{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [
      {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}])");
  const auto request =
      parsed({{"input", json::array({{{"type", "function_call_output"}, {"call_id", "c1"}, {"output", "r"}}})},
              {"previous_response_id", "resp_1"},
              {"instructions", "New."}},
             nullptr, {earlier, ordered_json::parse(R"([{"id": "msg_1"}])")});
  const json messages = json::parse(request.chat)["messages"];
  EXPECT_EQ(messages, json::parse(R"([{"role": "system", "content": "New."}, {"role": "user", "content": "a"},
    {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "c1", "name": "f", "content": "r"}])"));
  EXPECT_EQ(json(request.conversation).size(), 3u) << "without the instructions";
  EXPECT_EQ(request.settings["previous_response_id"], "resp_1");
  ASSERT_EQ(request.items.size(), 2u);
  EXPECT_EQ(request.items[0]["id"], "msg_1");
  EXPECT_EQ(request.items[1]["type"], "function_call_output");
}

TEST(ResponsesRequest, AllowedToolsAreTranslated) {
  const json chat =
      chat_of({{"tools", json::array({{{"type", "function"}, {"name", "f"}}, {{"type", "function"}, {"name", "g"}}})},
               {"tool_choice",
                {{"type", "allowed_tools"},
                 {"mode", "required"},
                 {"tools", json::array({{{"type", "function"}, {"name", "g"}}})}}}});
  EXPECT_EQ(chat["tool_choice"], json::parse(R"({"type": "allowed_tools", "allowed_tools": {"mode": "required",
    "tools": [{"type": "function", "function": {"name": "g"}}]}})"));
}

TEST(ResponsesRequest, ToolsFormatsAndOptionsAreTranslated) {
  const json chat = chat_of(
      {{"tools", json::array({{{"type", "function"},
                               {"name", "f"},
                               {"description", "d"},
                               {"parameters", {{"type", "object"}}},
                               {"strict", true}}})},
       {"tool_choice", {{"type", "function"}, {"name", "f"}}},
       {"parallel_tool_calls", false},
       {"max_output_tokens", 7},
       {"temperature", 0.5},
       {"top_p", 0.9},
       {"seed", 3},
       {"stream", true},
       {"include", {"reasoning.encrypted_content", "message.output_text.logprobs"}},
       {"top_logprobs", 2},
       {"reasoning", {{"effort", "high"}, {"summary", "auto"}}},
       {"text",
        {{"verbosity", "low"},
         {"format", {{"type", "json_schema"}, {"name", "n"}, {"schema", {{"type", "integer"}}}, {"strict", true}}}}}});
  EXPECT_EQ(chat["tools"], json::parse(R"([{"type": "function", "function": {"name": "f", "description": "d",
    "parameters": {"type": "object"}, "strict": true}}])"));
  EXPECT_EQ(chat["tool_choice"], json({{"type", "function"}, {"function", {{"name", "f"}}}}));
  EXPECT_EQ(chat["parallel_tool_calls"], false);
  EXPECT_EQ(chat["max_completion_tokens"], 7);
  EXPECT_EQ(chat["seed"], 3);
  EXPECT_EQ(chat["logprobs"], true);
  EXPECT_EQ(chat["top_logprobs"], 2);
  EXPECT_EQ(chat["reasoning_effort"], "high");
  EXPECT_EQ(chat["chat_template_kwargs"], json({{"verbosity", "low"}}));
  EXPECT_EQ(chat["response_format"],
            json({{"type", "json_schema"},
                  {"json_schema", {{"name", "n"}, {"schema", {{"type", "integer"}}}, {"strict", true}}}}));
  EXPECT_EQ(chat["stream_options"], json({{"include_usage", true}}));
  EXPECT_EQ(chat_of({{"text", {{"format", {{"type", "json_object"}}}}}})["response_format"],
            json({{"type", "json_object"}}));
  EXPECT_EQ(chat_of({{"reasoning", {{"effort", "none"}}}})["chat_template_kwargs"],
            json({{"enable_thinking", false}, {"thinking", false}}));
}

TEST(ResponsesRequest, CustomToolsTheirCallsAndOutputsAreTranslated) {
  const json chat = chat_of(json::parse(R"({
    "tools": [{"type": "custom", "name": "p", "description": "d",
               "format": {"type": "grammar", "syntax": "regex", "definition": "a+"}},
              {"type": "custom", "name": "q", "format": {"type": "text"}}],
    "tool_choice": {"type": "custom", "name": "p"},
    "input": [{"type": "custom_tool_call", "call_id": "c1", "name": "p", "input": "aa"},
              {"type": "custom_tool_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "r"}]}]})"));
  EXPECT_EQ(chat["tools"], json::parse(R"([
    {"type": "custom", "custom": {"name": "p", "description": "d",
     "format": {"type": "grammar", "grammar": {"syntax": "regex", "definition": "a+"}}}},
    {"type": "custom", "custom": {"name": "q", "format": {"type": "text"}}}])"));
  EXPECT_EQ(chat["tool_choice"], json::parse(R"({"type": "custom", "custom": {"name": "p"}})"));
  EXPECT_EQ(chat["messages"], json::parse(R"([
    {"role": "assistant", "tool_calls": [{"id": "c1", "type": "custom", "custom": {"name": "p", "input": "aa"}}]},
    {"role": "tool", "tool_call_id": "c1", "name": "p", "content": "r"}])"));
}

TEST(ResponsesRequest, UnknownFieldsAreNamedWhereverTheyStand) {
  std::vector<std::string> unknown;
  parsed({{"input", json::array({{{"role", "user"}, {"content", "a"}, {"x", 1}}})}, {"plugins", 1}}, &unknown);
  EXPECT_THAT(unknown, testing::ElementsAre("input[0].x", "plugins"));
}

TEST(ResponsesRequest, WhatIsWrongIsNamedAsTheClientKnowsIt) {
  const auto item = [](const json& one) { return json{{"input", json::array({one})}}; };
  const struct {
    json body;
    const char* param;
    const char* message;
  } cases[] = {
      {{{"input", 5}}, "input", "items; or a text"},
      {{{"input", json::array()}}, "input", "1 to 2048"},
      {item(5), "input[0]", "an object"},
      {item({{"type", "item_reference"}, {"id", "1"}}), "input[0].type", "function_call_output"},
      {item({{"role", "king"}, {"content", "a"}}), "input[0].role", "developer"},
      {item({{"role", "user"}}), "input[0].content", "missing"},
      {item({{"role", "user"}, {"content", json::array({{{"type", "input_image"}}})}}), "input[0].content[0].image_url",
       "missing"},
      {item({{"role", "user"},
             {"content", json::array({{{"type", "input_image"}, {"image_url", "data:"}, {"file_id", "f"}}})}}),
       "input[0].content[0].file_id", "keeps no files"},
      {item({{"role", "system"}, {"content", json::array({{{"type", "input_image"}, {"image_url", "data:"}}})}}),
       "input[0].content[0].type", "images stand in messages of the user"},
      {item({{"type", "function_call"}, {"call_id", "1"}, {"name", "f"}}), "input[0].arguments", "missing"},
      {item({{"type", "function_call_output"}, {"call_id", "1"}}), "input[0].output", "missing"},
      {{{"tools", json::array({{{"type", "web_search"}}})}}, "tools[0].type", "no tools of its own"},
      {{{"tool_choice", {{"type", "mcp"}}}}, "tool_choice.type", "\"allowed_tools\""},
      {{{"tool_choice", {{"type", "allowed_tools"}, {"mode", "auto"}}}}, "tool_choice.tools", "1 to 512"},
      {{{"tool_choice",
         {{"type", "allowed_tools"}, {"mode", "auto"}, {"tools", json::array({{{"type", "mcp"}, {"name", "f"}}})}}}},
       "tool_choice.tools[0].type",
       "\"function\""},
      {{{"text", {{"format", {{"type", "xml"}}}}}}, "text.format.type", "json_schema"},
      {{{"text", {{"format", {{"type", "json_schema"}, {"name", "n"}}}}}}, "text.format.schema", "missing"},
      {{{"background", true}}, "background", "false"},
      {{{"conversation", "c"}}, "conversation", "null"},
      {{{"truncation", "some"}}, "truncation", "auto"},
      {{{"max_output_tokens", 0}}, "max_output_tokens", "from 1"},
      {{{"include", {1}}}, "include", "strings"},
  };
  for (const auto& c : cases) {
    const ApiError error = refused(c.body);
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.param, c.param) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(c.message));
  }
}

TEST(ResponseStore, TheLeastRecentlyUsedMakeRoom) {
  ResponseStore store(3, 100);
  for (const char* id : {"a", "b", "c"}) EXPECT_TRUE(store.put(id, {"body", "chat", ""}));
  EXPECT_EQ(store.get("a")->body, "body");
  EXPECT_TRUE(store.put("d", {"body", "", "chat"}));
  EXPECT_FALSE(store.get("b")) << "a was used after it";
  EXPECT_TRUE(store.get("a") && store.get("c") && store.get("d"));
  EXPECT_TRUE(store.put("e", {std::string(44, 'x'), "", std::string(44, 'x')}));
  EXPECT_EQ(store.size(), 2u) << "89 bytes and those of one of the others";
  EXPECT_FALSE(store.put("f", {std::string(101, 'x'), "", ""}));
  EXPECT_TRUE(store.remove("e"));
  EXPECT_FALSE(store.remove("e"));
  EXPECT_FALSE(store.get("e"));
}

}  // namespace
}  // namespace pm::server
