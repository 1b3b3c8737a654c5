// SPDX-License-Identifier: Apache-2.0
// Custom tools of chats and responses: what the template sees, how their calls come back, and which grammars are held.
#include "worker/server/replies/custom_tools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/unit/worker/server/support/api_test_server.h"
#include "tests/unit/worker/server/support/events.h"
#include "tests/unit/worker/tokenizer/tokenizer_files.h"

namespace pm::test {
namespace {

using server::CustomInput;
using testing::HasSubstr;

/// Returns the input of arguments that come in pieces of this size.
std::string input_of(const std::string& arguments, size_t size) {
  CustomInput input;
  std::string all;
  for (size_t at = 0; at < arguments.size(); at += size) all += input.feed(arguments.substr(at, size));
  return all + input.finish();
}

TEST(CustomInput, IsTheSameHoweverItsArgumentsAreCut) {
  const struct {
    const char *arguments, *input;
  } cases[] = {
      {R"({"input": "a\nb \"c\" \\ \/ \t"})", "a\nb \"c\" \\ / \t"},
      {R"( { "input" : "ä\u00e4\ud83d\ude00😀" , "more": 1} )", "ää😀😀"},
      {R"({"input": "\ud83d \ud83dx \ude00 \x \u12g4"})", "\uFFFD \uFFFDx \uFFFD \\x \\u12g4"},
      {R"({"input": ""})", ""},
      {"{}", ""},
      {"", ""},
      {R"({"more": 1, "input": "a\nb"})", "a\nb"},
      {R"({"input": 5})", R"({"input": 5})"},
      {R"({"text": "a"})", R"({"text": "a"})"},
      {"*** Begin Patch\n{}", "*** Begin Patch\n{}"},
      {"{a", "{a"},
      {R"({"input": "cut\)", "cut"},
      {R"({"input": "cut\ud83d\u)", "cut"},
      {R"({"inp)", ""},
  };
  for (const auto& c : cases)
    for (const size_t size : {1, 2, 3, 5, 7, 100}) EXPECT_EQ(input_of(c.arguments, size), c.input) << size;
}

TEST(CustomInput, ComesWhileItsArgumentsCome) {
  CustomInput input;
  EXPECT_EQ(input.feed(R"({"input": "ab)"), "ab");
  EXPECT_EQ(input.feed("\\"), "");
  EXPECT_EQ(input.feed("nc"), "\nc");
  EXPECT_EQ(input.feed("\"}"), "");
  EXPECT_EQ(input.finish(), "");
}

TEST(WholePattern, NarrowsNegatedClassesAndKeepsTheRest) {
  EXPECT_EQ(server::whole_pattern("a|b"), "^(?:a|b)$");
  EXPECT_EQ(server::whole_pattern(R"([^"]+\[^(a)[)])"), R"(^(?:[^"]+\[^(a)[)])$)");
  EXPECT_EQ(server::whole_pattern("[^)a][[)b][a\\])c]"), "^(?:[^)a][[)b][a\\])c])$");
  EXPECT_EQ(server::whole_pattern("[a[]b)|(c]"), std::nullopt) << "classes have no classes in them";
  EXPECT_EQ(server::whole_pattern("a)|(b"), std::nullopt) << "it would be another expression";
  EXPECT_EQ(server::whole_pattern(R"(\)[)]())"), R"(^(?:\)[)]())$)");
}

json custom_tool(const json& more = json::object()) {
  json tool = {{"name", "patch"}, {"description", "Patches."}};
  tool.update(more);
  return {{"type", "custom"}, {"custom", tool}};
}

json regex_format(const char* definition) {
  return {{"format", {{"type", "grammar"}, {"grammar", {{"syntax", "regex"}, {"definition", definition}}}}}};
}

/// Serves a model that says `reply`, whose calls are the JSON between <c> and ;.
ApiTestServer saying(const std::string& reply) {
  TempFolder folder;
  const json function = {{"name", "{content.n}"}, {"arguments", "{content.a}"}};  // short, as the window is
  const json call = {{"open", "<c>"}, {"close", ";"}, {"content", "json"}, {"transform", {{"function", function}}}};
  const json fields = {{"tool_calls", call}, {"content", {{"close", "<assistant>"}}}};
  std::ofstream(folder.path() / "tokenizer_config.json")
      << json{{"response_template", {{"start_anchor", "<assistant>"}, {"fields", fields}}}};
  std::string problem;
  const auto replies = ReplyForm::find(folder.path(), "", &problem);
  EXPECT_EQ(problem, "");
  return ApiTestServer(
      [reply](const engine::Request&, int64_t step) {
        return step < std::ssize(reply) ? static_cast<unsigned char>(reply[static_cast<size_t>(step)]) : end_id;
      },
      [&](auto& options) { options.replies = replies; });
}

httplib::Result post(const ApiTestServer& served, const char* path, const json& body) {
  return served.client().Post(path, body.dump(), "application/json");
}

json chat_body(const json& tools) {
  return {{"messages", json::array({{{"role", "user"}, {"content", ""}}})}, {"tools", tools}};
}

const std::string call_text = R"(<c>{"n":"p","a":{"input":"a\n\"b"}};)";

TEST(CustomTools, CallsOfChatsHaveTheirInputAsText) {
  const ApiTestServer served = saying(call_text);
  json body = chat_body(json::array({custom_tool({{"name", "p"}})}));
  const json choice = json::parse(post(served, "/v1/chat/completions", body)->body)["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls") << choice;
  const json call = choice["message"]["tool_calls"][0];
  EXPECT_EQ(call["type"], "custom");
  EXPECT_EQ(call["custom"], (json{{"name", "p"}, {"input", "a\n\"b"}}));
  EXPECT_FALSE(call.contains("function"));
  body["stream"] = true;
  std::string input;
  size_t deltas = 0;
  for (const std::string& event : events_of(post(served, "/v1/chat/completions", body)->body)) {
    if (event == "[DONE]") continue;
    const json chunk = json::parse(event);
    for (const json& piece : chunk["choices"][0]["delta"].value("tool_calls", json::array())) {
      input += piece["custom"]["input"].get<std::string>();
      EXPECT_EQ(piece.contains("id"), deltas++ == 0) << piece;
    }
  }
  EXPECT_EQ(input, "a\n\"b");
  EXPECT_GE(deltas, 2u) << "the name comes first";
}

TEST(CustomTools, OnlyTheirOwnCallsAreCustom) {
  const ApiTestServer served = saying(R"(<c>{"n":"f","a":{}};<c>{"n":"p","a":"x"};)");
  const json function = {{"type", "function"}, {"function", {{"name", "f"}}}};
  const json reply = json::parse(
      post(served, "/v1/chat/completions", chat_body(json::array({function, custom_tool({{"name", "p"}})})))->body);
  const json calls = reply["choices"][0]["message"]["tool_calls"];
  ASSERT_EQ(calls.size(), 2u) << reply;
  EXPECT_EQ(calls[0]["function"], (json{{"name", "f"}, {"arguments", "{}"}}));
  EXPECT_EQ(calls[1]["custom"]["input"], "x");
}

TEST(CustomTools, CallsOfResponsesAreItemsAndEventsAndTheirOutputsReachTheModel) {
  const ApiTestServer served = saying(call_text);
  const json tool = {{"type", "custom"},
                     {"name", "p"},
                     {"format", {{"type", "grammar"}, {"syntax", "lark"}, {"definition", "start: /a/"}}}};
  json body = {{"input", ""}, {"tools", json::array({tool})}, {"stream", true}};
  const auto events = named_events_of(post(served, "/v1/responses", body)->body);
  std::string input;
  std::vector<std::string> names;
  for (const json& event : events) {
    const std::string name = event["type"];
    if (name == "response.custom_tool_call_input.delta") input += event["delta"].get<std::string>();
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  EXPECT_EQ(input, "a\n\"b");
  EXPECT_THAT(names,
              testing::ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                                   "response.custom_tool_call_input.delta", "response.custom_tool_call_input.done",
                                   "response.output_item.done", "response.completed"));
  const json response = events.back()["response"], item = response["output"][0];
  EXPECT_EQ(item["type"], "custom_tool_call");
  EXPECT_EQ(item["input"], "a\n\"b");
  EXPECT_EQ(item["id"], "ctc_" + response["id"].get<std::string>() + "_0");
  EXPECT_EQ(response["tools"], json::array({tool}));
  const json output = {{"type", "custom_tool_call_output"}, {"call_id", item["call_id"]}, {"output", "done"}};
  body = {{"input", json::array({output})}, {"previous_response_id", response["id"]}, {"max_output_tokens", 1}};
  EXPECT_EQ(post(served, "/v1/responses", body)->status, 200);
  const std::string prompt = served.tokenizer.decode(served.engine.submitted_requests().back().prompt, false);
  EXPECT_THAT(prompt, HasSubstr("<tool>done</>"));
}

json refusal(const ApiTestServer& served, json body, const json& more) {
  body.update(more);
  return error_of(post(served, "/v1/chat/completions", body), 400);
}

TEST(CustomTools, WhatIsWrongIsNamed) {
  const ApiTestServer served = saying("");
  const struct {
    json tools;
    const char* param;
  } cases[] = {
      {json::array({{{"type", "custom"}}}), "tools[0].custom"},
      {json::array({{{"type", "custom"}, {"custom", json::object()}}}), "tools[0].custom.name"},
      {json::array({custom_tool({{"format", {{"type", "xml"}}}})}), "tools[0].custom.format.type"},
      {json::array({custom_tool({{"format", {{"type", "grammar"}}}})}), "tools[0].custom.format.grammar"},
      {json::array(
           {custom_tool({{"format", {{"type", "grammar"}, {"grammar", {{"syntax", "ebnf"}, {"definition", "x"}}}}}})}),
       "tools[0].custom.format.grammar.syntax"},
      {json::array({custom_tool({{"format", {{"type", "text"}, {"pattern", "x"}}}})}), "pattern"},
      {json::array({custom_tool(), custom_tool()}), "tools[1].custom.name"},
      {json::array({custom_tool(), {{"type", "function"}, {"function", {{"name", "patch"}}}}}), "tools"},
      {json::array({{{"type", "web_search"}}}), "tools[0].type"},
  };
  for (const auto& c : cases)
    EXPECT_THAT(refusal(served, chat_body(c.tools), json::object())["param"].get<std::string>(), HasSubstr(c.param))
        << c.tools;
  const json function = {{"type", "function"}, {"function", {{"name", "patch"}}}};
  EXPECT_EQ(refusal(served, chat_body(json::array({custom_tool()})), {{"tool_choice", function}})["param"],
            "tool_choice");
  json call = {{"role", "assistant"},
               {"tool_calls", json::array({{{"id", "1"}, {"type", "custom"}, {"custom", {{"name", "patch"}}}}})}};
  EXPECT_EQ(refusal(served, chat_body(json::array()), {{"messages", json::array({call})}})["param"],
            "messages[0].tool_calls.custom");
  const json tool = {{"type", "custom"}, {"name", ""}};
  EXPECT_EQ(error_of(post(served, "/v1/responses", {{"input", "a"}, {"tools", json::array({tool})}}), 400)["param"],
            "tools[0].name");
}

TEST(CustomTools, AGrammarIsHeldOrRefusedWhereACallIsDemanded) {
  TempFolder folder;
  std::string problem;
  const auto replies = ReplyForm::find(folder.path(), "chatml", &problem);
  const ApiTestServer served({}, [&](auto& options) { options.replies = replies; });
  const json named = {{"tool_choice", {{"type", "custom"}, {"custom", {{"name", "patch"}}}}}};
  const json required = {{"tool_choice", "required"}}, automatic = {{"tool_choice", "auto"}};
  const auto is_constrained = [&](const json& tool, const json& choice) {
    json body = chat_body(json::array({tool}));
    body.update(choice);
    body["max_tokens"] = 1;
    post(served, "/v1/chat/completions", body);
    return served.engine.submitted_requests().back().constraint != nullptr;
  };
  const json lark =
      custom_tool({{"format", {{"type", "grammar"}, {"grammar", {{"syntax", "lark"}, {"definition", "start: /a/"}}}}}});
  EXPECT_TRUE(is_constrained(custom_tool(), named));
  EXPECT_TRUE(is_constrained(custom_tool(regex_format("[a-z]+\\d")), required));
  EXPECT_FALSE(is_constrained(custom_tool(regex_format("[a-z]+\\d")), automatic));
  EXPECT_FALSE(is_constrained(lark, automatic));
  for (const json& choice : {named, required}) {
    const json error = refusal(served, chat_body(json::array({lark})), choice);
    EXPECT_EQ(error["param"], "tool_choice");
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("the tool patch: a Lark grammar"));
  }
  for (const char* odd : {"(a", "a)|(b", "a\\"})
    EXPECT_THAT(refusal(served, chat_body(json::array({custom_tool(regex_format(odd))})), required)["message"]
                    .get<std::string>(),
                HasSubstr("the tool patch"))
        << odd;
}

}  // namespace
}  // namespace pm::test
