// SPDX-License-Identifier: Apache-2.0
// Tests POST /v1/chat/completions over a real socket. The fake engine repeats the prompt, so an answer shows what the
// chat template rendered.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/unit/worker/server/support/api_test_server.h"
#include "tests/unit/worker/server/support/events.h"
#include "tests/unit/worker/tokenizer/tokenizer_files.h"

namespace pm::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

httplib::Result post(const ApiTestServer& served, const json& body) {
  return served.client().Post("/v1/chat/completions", body.dump(), "application/json");
}

json post_ok(const ApiTestServer& served, const json& body) {
  const auto result = post(served, body);
  EXPECT_TRUE(result) << httplib::to_string(result.error());
  if (!result) return json::object();
  EXPECT_EQ(result->status, 200) << result->body;
  return json::parse(result->body);
}

json says(const char* role, const json& content) { return {{"role", role}, {"content", content}}; }
json user(const json& content) { return json::array({says("user", content)}); }

/// Returns the prompt of the last request that reached the engine, as text.
std::string prompt_of(const ApiTestServer& served) {
  const auto seen = served.engine.submitted_requests();
  return seen.empty() ? "" : served.tokenizer.decode(seen.back().prompt, false);
}

std::string refusal(const ApiTestServer& served, json body, const std::string& param) {
  if (!body.contains("messages")) body["messages"] = user("a");
  const auto error = error_of(post(served, body), 400);
  EXPECT_EQ(error["param"], param) << body;
  return error["message"];
}

TEST(Chat, ReplyHasOpenAisFormat) {
  ApiTestServer served;
  served.engine.set_cached_tokens(3);
  const auto body = post_ok(served, {{"model", "org/tiny"}, {"messages", user("hi")}, {"max_completion_tokens", 6}});
  EXPECT_THAT(body["id"].get<std::string>(), testing::StartsWith("chatcmpl-"));
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["created"], 1700000000);
  EXPECT_EQ(body["choices"],
            json::array({{{"index", 0},
                          {"message", {{"role", "assistant"}, {"content", "<user>"}, {"refusal", nullptr}}},
                          {"logprobs", nullptr},
                          {"finish_reason", "length"}}}));
  const int prompt = std::string("<user>hi</><assistant>").size();
  EXPECT_EQ(body["usage"], json({{"prompt_tokens", prompt},
                                 {"completion_tokens", 6},
                                 {"total_tokens", prompt + 6},
                                 {"prompt_tokens_details", {{"cached_tokens", 3}}}}));
}

TEST(Chat, PromptLogprobsStandBesideTheChoices) {
  ApiTestServer served;
  const auto body = post_ok(served, {{"messages", user("hi")}, {"max_tokens", 1}, {"n", 2}, {"prompt_logprobs", 0}});
  ASSERT_EQ(body["prompt_logprobs"].size(), body["usage"]["prompt_tokens"]);
  EXPECT_EQ(body["prompt_logprobs"][0], nullptr);
  EXPECT_EQ(body["prompt_logprobs"][6], json({{"104", {{"logprob", -6}, {"rank", 7}, {"decoded_token", "h"}}}}));
  EXPECT_FALSE(body["choices"][0].contains("prompt_logprobs"));
  refusal(served, {{"prompt_logprobs", 1}, {"stream", true}}, "prompt_logprobs");
}

TEST(Chat, TheTemplateIsAppliedAndNoSpecialTokensAreAdded) {
  ApiTestServer served;
  post_ok(served, {{"messages", json::array({says("developer", "d"),
                                             says("user", json::array({{{"type", "text"}, {"text", "a"}},
                                                                       {{"type", "text"}, {"text", "b"}}}))})},
                   {"max_tokens", 1}});
  EXPECT_EQ(prompt_of(served), "<system>d</><user>a\nb</><assistant>");
  post_ok(served, {{"messages", json::array({says("user", "a"), says("assistant", "We")})},
                   {"continue_final_message", true},
                   {"max_tokens", 1}});
  EXPECT_EQ(prompt_of(served), "<user>a</><assistant>We");
  post_ok(served, {{"messages", user("a")},
                   {"add_generation_prompt", false},
                   {"chat_template_kwargs", {{"mood", "!"}}},
                   {"max_tokens", 1}});
  EXPECT_EQ(prompt_of(served), "<user>a</>!");
}

TEST(Chat, WithoutALimitTheAnswerMayFillTheContextWindow) {
  ApiTestServer served;
  EXPECT_EQ(post_ok(served, {{"messages", user("hi")}})["usage"]["total_tokens"], 64);
  EXPECT_EQ(post_ok(served, {{"messages", user("hi")},
                             {"max_tokens", 9},
                             {"max_completion_tokens", 3}})["usage"]["completion_tokens"],
            3);
  EXPECT_THAT(refusal(served, {{"max_completion_tokens", 60}}, "max_completion_tokens"), HasSubstr("at most 43"));
}

TEST(Chat, ToolsReachTheTemplate) {
  ApiTestServer served;
  const json tools = json::array({{{"type", "function"}, {"function", {{"name", "f"}}}}});
  post_ok(served, {{"messages", user("a")}, {"tools", tools}, {"tool_choice", "auto"}, {"max_tokens", 1}});
  EXPECT_EQ(prompt_of(served), "<user>a</>T1<assistant>");
  post_ok(served, {{"messages", user("a")}, {"tools", tools}, {"tool_choice", "none"}, {"max_tokens", 1}});
  EXPECT_EQ(prompt_of(served), "<user>a</><assistant>");
}

TEST(Chat, ToolsThatTheServerWouldRunAreRefused) {
  ApiTestServer served;
  const json tools = json::array({{{"function", {{"name", "f"}}}}, {{"type", "web_search"}}});
  EXPECT_THAT(refusal(served, {{"tools", tools}}, "tools[1].type"), HasSubstr("no tools of its own"));
}

TEST(Chat, AToolCallIsNotDemandedOfAModelWithoutAFormOfCalls) {
  ApiTestServer served;
  const json tools = json::array({{{"type", "function"}, {"function", {{"name", "f"}}}}});
  const json named = {{"type", "function"}, {"function", {{"name", "f"}}}};
  for (const json& choice : {json("required"), named})
    EXPECT_THAT(refusal(served, {{"tools", tools}, {"tool_choice", choice}}, "tool_choice"),
                HasSubstr("says how it writes calls"));
  EXPECT_THAT(refusal(served, {{"tool_choice", "required"}}, "tool_choice"), HasSubstr("tools is missing"));
  EXPECT_THAT(refusal(served, {{"tools", tools}, {"tool_choice", "any"}}, "tool_choice"), HasSubstr("required"));
  json other = named;
  other["function"]["name"] = "g";
  EXPECT_THAT(refusal(served, {{"tools", tools}, {"tool_choice", other}}, "tool_choice"), HasSubstr("one of tools"));
}

/// Serves a model that answers with `reply`, which has this response template.
ApiTestServer served_with_template(const json& response_template, const std::string& reply) {
  TempFolder folder;
  std::ofstream(folder.path() / "tokenizer_config.json") << json{{"response_template", response_template}};
  std::string problem;
  const auto replies = ReplyForm::find(folder.path(), "", &problem);
  EXPECT_EQ(problem, "");
  const auto says_it = [reply](const engine::Request&, int64_t step) {
    return step < std::ssize(reply) ? static_cast<unsigned char>(reply[static_cast<size_t>(step)]) : end_id;
  };
  return ApiTestServer(says_it, [&](auto& options) { options.replies = replies; });
}

TEST(Chat, RepliesAreParsedIntoReasoningCallsAndContent) {
  const json call = {{"open", "<c>"}, {"close", ";"}, {"content", "json"}, {"transform", {{"function", "{content}"}}}};
  const json fields = {
      {"reasoning", {{"open", "<s>"}, {"close", ";"}}}, {"tool_calls", call}, {"content", {{"close", "<assistant>"}}}};
  const ApiTestServer served = served_with_template({{"start_anchor", "<assistant>"}, {"fields", fields}},
                                                    R"(<s>H;<c>{"name":"f","arguments":{"a":1}};)");
  json body = {{"messages", user("")}, {"tools", json::array({{{"type", "function"}, {"function", {{"name", "f"}}}}})}};
  const json choice = post_ok(served, body)["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls") << choice;
  EXPECT_EQ(choice["message"]["content"], nullptr);
  EXPECT_EQ(choice["message"]["reasoning"], "H");
  EXPECT_EQ(choice["message"]["reasoning_content"], "H");
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"], (json{{"name", "f"}, {"arguments", R"({"a":1})"}}));
  body["tool_choice"] = "none";
  EXPECT_EQ(post_ok(served, body)["choices"][0]["message"]["tool_calls"], nullptr) << "their text is content";
}

TEST(Chat, StrictToolsConstrainAReplyThatMayCallThem) {
  TempFolder folder;
  std::string problem;
  const auto replies = ReplyForm::find(folder.path(), "chatml", &problem);
  const ApiTestServer served({}, [&](auto& options) { options.replies = replies; });
  const auto tool = [](json strict) {
    return json{{"type", "function"},
                {"function", {{"name", "f"}, {"parameters", {{"type", "object"}}}, {"strict", std::move(strict)}}}};
  };
  const auto is_constrained = [&](const json& tools, const char* choice) {
    post(served, {{"messages", user("a")}, {"tools", tools}, {"tool_choice", choice}, {"max_tokens", 1}});
    return served.engine.submitted_requests().back().constraint != nullptr;
  };
  EXPECT_TRUE(is_constrained(json::array({tool(true)}), "auto"));
  EXPECT_TRUE(is_constrained(json::array({tool(false), tool(true)}), "auto"));
  EXPECT_FALSE(is_constrained(json::array({tool(false)}), "auto"));
  EXPECT_FALSE(is_constrained(json::array({tool(nullptr)}), "auto"));
  EXPECT_FALSE(is_constrained(json::array({tool(true)}), "none"));
  json odd = tool(true);
  odd["function"]["parameters"]["not"] = json::object();
  EXPECT_THAT(refusal(served, {{"tools", json::array({odd})}}, "tools"),
              AllOf(HasSubstr("strict of tools cannot be held: the tool f"), HasSubstr("leave out strict")));
}

TEST(Chat, FieldsThatOpenAisClientSendsBackAreAccepted) {
  ApiTestServer served;
  json answer = says("assistant", "b");
  for (const char* name : {"refusal", "annotations", "audio", "function_call", "tool_calls"}) answer[name] = nullptr;
  const json call = {
      {"role", "assistant"},
      {"content", nullptr},
      {"tool_calls",
       json::array({{{"id", "1"}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", "{\"x\": 1}"}}}}})}};
  post_ok(
      served,
      {{"messages",
        json::array({says("user", "a"), answer, call, {{"role", "tool"}, {"tool_call_id", "1"}, {"content", "r"}}})},
       {"max_tokens", 1}});
  EXPECT_EQ(prompt_of(served), "<user>a</><assistant>b</><assistant></><tool>r</><assistant>");
}

TEST(Chat, AModelWithoutATemplateIsRefusedWithAdvice) {
  ApiTestServer served({}, [](auto& options) { options.chat_template.reset(); });
  const auto error = error_of(post(served, {{"messages", user("a")}}), 400);
  EXPECT_EQ(error["code"], "no_chat_template");
  EXPECT_THAT(error["message"].get<std::string>(),
              AllOf(HasSubstr("/v1/completions"), HasSubstr("chat_template.jinja")));
  ApiTestServer ids({}, {}, false);
  EXPECT_EQ(error_of(post(ids, {{"messages", user("a")}}), 400)["code"], "no_tokenizer");
}

TEST(Chat, AnExceptionInTheTemplateIsABadRequest) {
  ApiTestServer served;
  EXPECT_THAT(
      error_of(post(served, {{"messages", json::array({says("assistant", "a")})}}), 400)["message"].get<std::string>(),
      HasSubstr("Begin with the user"));
}

TEST(Chat, UnsupportedFieldsAreRefusedByName) {
  ApiTestServer served;
  refusal(served, {{"response_format", {{"type", "xml"}}}}, "response_format.type");
  refusal(served, {{"logit_bias", {{"5", 300}}}}, "logit_bias[5]");
  refusal(served, {{"chat_template", "x"}}, "chat_template");
  refusal(served, {{"functions", json::array()}}, "functions");
  refusal(served, {{"modalities", {"text", "audio"}}}, "modalities");
  refusal(served, {{"top_logprobs", 2}}, "logprobs");
  refusal(served, {{"messages", json::array()}}, "messages");
  refusal(served, {{"messages", "hi"}}, "messages");
  refusal(served, {{"messages", json::array({says("king", "a")})}}, "messages[0].role");
  refusal(served, {{"messages", json::array({{{"role", "user"}}})}}, "messages[0].content");
  refusal(served, {{"messages", json::array({{{"content", "a"}}})}}, "messages[0].role");
  refusal(served, {{"messages", user(json::array({{{"type", "image_url"}, {"image_url", {{"url", "x"}}}}}))}},
          "messages[0].content[0].type");
  refusal(served, {{"continue_final_message", true}, {"add_generation_prompt", true}}, "continue_final_message");
  refusal(served, {{"guided_json", json::object()}}, "guided_json");
  error_of(post(served, {{"model", "gpt-4"}, {"messages", user("a")}}), 404);
  EXPECT_EQ(post_ok(served, {{"messages", user("a")},
                             {"max_tokens", 1},
                             {"response_format", {{"type", "text"}}},
                             {"modalities", {"text"}},
                             {"store", false},
                             {"parallel_tool_calls", true},
                             {"metadata", {{"a", "b"}}},
                             {"service_tier", "auto"}})["object"],
            "chat.completion");
}

TEST(Chat, UnknownFieldsAreIgnoredAndNamedInAHeader) {
  ApiTestServer served;
  const json part = {{"type", "text"}, {"text", "a"}, {"cache_control", {{"type", "ephemeral"}}}};
  for (const bool stream : {false, true}) {
    const json message = {{"role", "user"}, {"content", json::array({part})}, {"mood", "!"}, {"\r\nx: y", 1}};
    const auto result =
        post(served, {{"messages", json::array({message})}, {"max_tokens", 1}, {"stream", stream}, {"plugins", 1}});
    ASSERT_EQ(result->status, 200) << result->body;
    EXPECT_EQ(result->get_header_value("x-ignored-fields"),
              "messages[0].content[0].cache_control, messages[0].__x__y, messages[0].mood, plugins");
    EXPECT_EQ(prompt_of(served), "<user>a</><assistant>");
  }
  EXPECT_FALSE(post(served, {{"messages", user("a")}, {"max_tokens", 1}})->has_header("x-ignored-fields"));
  json many = {{"messages", user("a")}, {"max_tokens", 1}};
  for (int i = 10; i < 40; ++i) many["field" + std::to_string(i) + std::string(100, 'x')] = 1;
  const std::string header = post(served, many)->get_header_value("x-ignored-fields");
  EXPECT_LT(header.size(), 1100u);
  EXPECT_THAT(header, AllOf(HasSubstr("field25"), testing::Not(HasSubstr("field26")), testing::EndsWith(", ...")));
}

TEST(Chat, AStrictServerRefusesUnknownFields) {
  ApiTestServer served({}, [](auto& options) { options.strict_requests = true; });
  refusal(served, {{"messages", json::array({{{"role", "user"}, {"content", "a"}, {"mood", 1}}})}}, "messages[0].mood");
  EXPECT_THAT(refusal(served, {{"max_completion_token", 5}}, "max_completion_token"),
              HasSubstr("the nearest is max_completion_tokens;"));
}

TEST(Chat, LogprobsCarryTokensAndTheirBytes) {
  ApiTestServer served([](const engine::Request&, int64_t step) { return step == 0 ? 'A' : 0xE4; });
  const auto choice = post_ok(
      served, {{"messages", user("a")}, {"max_tokens", 2}, {"logprobs", true}, {"top_logprobs", 2}})["choices"][0];
  const json& content = choice["logprobs"]["content"];
  ASSERT_EQ(content.size(), 2u);
  EXPECT_EQ(content[0], json({{"token", "A"},
                              {"logprob", -0.25},
                              {"bytes", {65}},
                              {"top_logprobs",
                               {{{"token", "A"}, {"logprob", -0.25}, {"bytes", {65}}},
                                {{"token", "B"}, {"logprob", -1.25}, {"bytes", {66}}}}}}));
  EXPECT_EQ(content[1]["bytes"], nullptr) << "bytes is null for part of a character";
}

TEST(Chat, EventsHaveOpenAisFormat) {
  ApiTestServer served;
  const auto result = post(served, {{"messages", user("hi")},
                                    {"max_tokens", 6},
                                    {"n", 2},
                                    {"stream", true},
                                    {"stream_options", {{"include_usage", true}}},
                                    {"logprobs", true}});
  ASSERT_TRUE(result);
  auto events = events_of(result->body);
  ASSERT_GE(events.size(), 4u);
  EXPECT_EQ(events.back(), "[DONE]");
  events.pop_back();
  const auto usage = json::parse(events.back());
  EXPECT_EQ(usage["choices"], json::array());
  EXPECT_EQ(usage["usage"]["completion_tokens"], 12);
  events.pop_back();
  std::string text[2], finish[2];
  size_t tokens[2] = {0, 0};
  for (size_t i = 0; i < events.size(); ++i) {
    const auto event = json::parse(events[i]);
    EXPECT_EQ(event["object"], "chat.completion.chunk");
    EXPECT_EQ(event["usage"], nullptr);
    const auto& choice = event["choices"][0];
    const size_t index = choice["index"];
    if (i < 2) {
      EXPECT_EQ(choice["delta"], json({{"role", "assistant"}, {"content", ""}, {"refusal", nullptr}}));
    }
    text[index] += choice["delta"].value("content", "");
    EXPECT_EQ(finish[index], "") << "no chunk follows the last";
    if (!choice["finish_reason"].is_null()) {
      finish[index] = choice["finish_reason"];
      EXPECT_EQ(choice["delta"], json::object());
    }
    if (!choice["logprobs"].is_null()) tokens[index] += choice["logprobs"]["content"].size();
  }
  EXPECT_EQ(text[0], "<user>");
  EXPECT_EQ(text[1], "user>h");
  EXPECT_EQ(tokens[0], 6u);
  EXPECT_EQ(tokens[1], 6u);
  EXPECT_EQ(finish[1], "length");
}

TEST(Chat, ADisconnectedClientCancelsAllItsSequences) {
  ApiTestServer served;
  served.engine.hold(true);
  for (const bool stream : {false, true}) {
    {
      RawSocket socket(served.api->bound_port());
      const std::string body = json({{"messages", user("hi")}, {"n", 3}, {"stream", stream}}).dump();
      socket.send("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) +
                  "\r\n\r\n" + body);
      ASSERT_TRUE(eventually([&] { return served.engine.open() == 1; }));
    }
    EXPECT_TRUE(eventually([&] { return served.engine.open() == 0; })) << stream;
  }
}

}  // namespace
}  // namespace pm::test
