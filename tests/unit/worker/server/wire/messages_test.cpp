// SPDX-License-Identifier: Apache-2.0
// Writes chat completions as Anthropic's messages, and serves POST /v1/messages over a real socket. The fake engine
// repeats the prompt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/worker/server/support/api_test_server.h"
#include "tests/unit/worker/server/support/events.h"
#include "tests/unit/worker/server/wire/chat_chunks.h"
#include "tests/unit/worker/tokenizer/tokenizer_files.h"
#include "worker/server/wire/messages_form.h"

namespace pm::test {
namespace {

using server::MessagesForm;
using testing::HasSubstr;

MessagesForm form(int64_t max_tokens = 100) { return MessagesForm("req-1", "tiny", max_tokens, 64); }

json hi(json more = json::object()) {
  more.update({{"messages", json::array({{{"role", "user"}, {"content", "hi"}}})}});
  if (!more.contains("max_tokens")) more["max_tokens"] = 6;
  return more;
}

httplib::Result post(const ApiTestServer& served, const json& body, const std::string& path = "/v1/messages") {
  return served.client().Post(path, body.dump(), "application/json");
}

json error_in(const httplib::Result& result, int status) {
  EXPECT_EQ(result->status, status) << result->body;
  const json body = json::parse(result->body);
  EXPECT_EQ(body["type"], "error");
  EXPECT_EQ(body["request_id"], result->get_header_value("request-id"));
  EXPECT_EQ(body["request_id"], result->get_header_value("x-request-id"));
  return body["error"];
}

TEST(MessagesForm, AStreamOfReasoningTextAndCallsHasABlockForEach) {
  auto made = form();
  made.begin(int64_t{9});
  std::string text;
  for (const json& chunk : tool_call_chunks()) text += made.events(chunk);
  const auto events = named_events_of(text + made.end());
  std::vector<std::string> names;
  for (const json& event : events) names.push_back(event["type"]);
  EXPECT_EQ(names, (std::vector<std::string>{
                       "message_start", "ping", "content_block_start", "content_block_delta", "content_block_delta",
                       "content_block_stop", "content_block_start", "content_block_delta", "content_block_stop",
                       "content_block_start", "content_block_delta", "content_block_delta", "content_block_stop",
                       "content_block_start", "content_block_stop", "message_delta", "message_stop"}));
  EXPECT_EQ(events[0]["message"]["usage"]["input_tokens"], 9);
  EXPECT_EQ(events[0]["message"]["content"], json::array());
  EXPECT_EQ(events[2]["content_block"], json({{"type", "thinking"}, {"thinking", ""}, {"signature", ""}}));
  EXPECT_EQ(events[3]["delta"], json({{"type", "thinking_delta"}, {"thinking", "Hm"}}));
  EXPECT_EQ(events[7]["delta"], json({{"type", "text_delta"}, {"text", "One moment."}}));
  EXPECT_EQ(events[9]["index"], 2);
  EXPECT_EQ(events[9]["content_block"],
            json({{"type", "tool_use"}, {"id", "call_1"}, {"name", "weather"}, {"input", json::object()}}));
  EXPECT_EQ(events[10]["delta"], json({{"type", "input_json_delta"}, {"partial_json", "{\"city\": "}}));
  EXPECT_EQ(events[15]["delta"], json({{"stop_reason", "tool_use"}, {"stop_sequence", nullptr}}));
  EXPECT_EQ(events[15]["usage"], json({{"input_tokens", 5},
                                       {"cache_creation_input_tokens", 0},
                                       {"cache_read_input_tokens", 4},
                                       {"output_tokens", 11}}));
}

TEST(MessagesForm, AWholeReplyHasTheSameBlocks) {
  const json message = json::parse(form().reply(tool_call_completion()));
  EXPECT_EQ(message["content"],
            json::array({{{"type", "thinking"}, {"thinking", "Hm."}, {"signature", ""}},
                         {{"type", "text"}, {"text", "One moment."}, {"citations", nullptr}},
                         {{"type", "tool_use"}, {"id", "call_1"}, {"name", "weather"}, {"input", {{"city", "Rom"}}}},
                         {{"type", "tool_use"}, {"id", "call_2"}, {"name", "clock"}, {"input", json::object()}}}));
  EXPECT_EQ(message["stop_reason"], "tool_use");
  EXPECT_EQ(message["id"], "msg_req-1");
}

TEST(MessagesForm, ArgumentsThatAreNoObjectAreKeptAsText) {
  json completion = tool_call_completion();
  completion["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = "{\"city\": \"Ro";
  completion["choices"][0]["finish_reason"] = "length";
  const json message = json::parse(form(11).reply(completion));
  EXPECT_EQ(message["content"][2]["input"], json({{"INVALID_JSON", "{\"city\": \"Ro"}}));
  EXPECT_EQ(message["stop_reason"], "max_tokens");
}

TEST(MessagesForm, AnEndSaysWhetherTheWindowOrTheRequestSetTheLimit) {
  json completion = tool_call_completion();
  completion["choices"][0]["finish_reason"] = "length";
  EXPECT_EQ(json::parse(form(100).reply(completion))["stop_reason"], "max_tokens") << "such as by max_time";
  completion["usage"]["prompt_tokens"] = 53;
  EXPECT_EQ(json::parse(form(100).reply(completion))["stop_reason"], "model_context_window_exceeded");
}

TEST(Messages, AReplyHasAnthropicsForm) {
  ApiTestServer served;
  const auto result = post(served, hi({{"model", "org/tiny"}}));
  ASSERT_EQ(result->status, 200) << result->body;
  const json message = json::parse(result->body);
  EXPECT_EQ(message["id"], "msg_" + result->get_header_value("request-id"));
  EXPECT_EQ(message["content"], json::array({{{"type", "text"}, {"text", "<user>"}, {"citations", nullptr}}}));
  EXPECT_EQ(message["stop_reason"], "max_tokens");
  EXPECT_EQ(message["usage"]["input_tokens"], 22);
  EXPECT_EQ(message["usage"]["output_tokens"], 6);
  const json stopped = json::parse(post(served, hi({{"max_tokens", 30}, {"stop_sequences", {"hi", "er>"}}}))->body);
  EXPECT_EQ(stopped["content"][0]["text"], "<us");
  EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped["stop_sequence"], "er>");
  const json cut = json::parse(post(served, hi({{"max_tokens", 64000}}))->body);
  EXPECT_EQ(cut["stop_reason"], "model_context_window_exceeded");
  EXPECT_EQ(cut["usage"]["output_tokens"], 42);
}

TEST(Messages, EventsJoinToTheReply) {
  ApiTestServer served;
  const auto result = post(served, hi({{"stream", true}, {"foo", 1}}));
  ASSERT_EQ(result->status, 200);
  EXPECT_EQ(result->get_header_value("Content-Type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(result->get_header_value("x-ignored-fields"), "foo");
  std::string text;
  const auto events = named_events_of(result->body);
  for (const json& event : events)
    if (event["type"] == "content_block_delta") text += event["delta"]["text"].get<std::string>();
  EXPECT_EQ(text, "<user>");
  EXPECT_EQ(events.front()["type"], "message_start");
  EXPECT_EQ(events.back()["type"], "message_stop");
}

TEST(Messages, TokensAreCountedWithoutGeneration) {
  ApiTestServer served;
  json body = hi();
  body.erase("max_tokens");
  const auto result = post(served, body, "/v1/messages/count_tokens");
  EXPECT_EQ(json::parse(result->body), json({{"input_tokens", 22}}));
  EXPECT_TRUE(served.engine.submitted_requests().empty());
}

TEST(Messages, ErrorsHaveAnthropicsFormAndTheClientsFields) {
  ApiTestServer served({}, [](auto& options) { options.http.payload_limit = 2000; });
  json error = error_in(post(served, {{"messages", 1}}), 400);
  EXPECT_EQ(error["type"], "invalid_request_error");
  EXPECT_EQ(error["param"], "messages");
  error = error_in(post(served, hi({{"model", "claude"}})), 404);
  EXPECT_EQ(error["type"], "not_found_error");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("org/tiny"));
  EXPECT_EQ(error_in(post(served, hi({{"x", std::string(3000, 'x')}})), 413)["type"], "request_too_large");
  error = error_in(post(served, hi({{"system", std::string(80, 's')}})), 400);
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_EQ(error_in(served.client().Get("/v1/messages"), 405)["type"], "invalid_request_error");
  served.engine.limit_open(0);
  EXPECT_EQ(error_in(post(served, hi()), 429)["type"], "rate_limit_error");
  ApiTestServer strict({}, [](auto& options) { options.strict_requests = true; });
  EXPECT_EQ(error_in(post(strict, hi({{"foo", 1}})), 400)["code"], "unknown_field");
}

TEST(Messages, AFailureDuringTheStreamIsAnErrorEvent) {
  ApiTestServer served;
  served.engine.hold(true);
  RawSocket socket(served.api->bound_port());
  const std::string body = hi({{"stream", true}}).dump();
  socket.send("POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
              body);
  ASSERT_TRUE(eventually([&] { return served.engine.open() == 1; }));
  EXPECT_THAT(socket.read_until("event: ping"), HasSubstr("event: message_start")) << "before the first token";
  served.engine.fail("a rank was lost");
  const std::string end = socket.read_until("overloaded_error");
  EXPECT_THAT(end, HasSubstr("event: error"));
  EXPECT_THAT(end, HasSubstr("\"code\":\"rank_lost\""));
}

TEST(Messages, ADisconnectedClientCancelsItsRequest) {
  ApiTestServer served;
  served.engine.hold(true);
  for (const bool stream : {false, true}) {
    {
      RawSocket socket(served.api->bound_port());
      const std::string body = hi({{"stream", stream}}).dump();
      socket.send("POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) +
                  "\r\n\r\n" + body);
      ASSERT_TRUE(eventually([&] { return served.engine.open() == 1; }));
    }
    EXPECT_TRUE(eventually([&] { return served.engine.open() == 0; })) << stream;
  }
}

TEST(Messages, AKeyMayStandInEitherHeader) {
  TempFolder folder;
  std::ofstream(folder.path() / "key") << "secret";
  ApiTestServer served({}, [&](auto& options) { options.keys = std::make_shared<server::ApiKeys>(folder.path()); });
  const auto ask = [&](const httplib::Headers& headers) {
    return served.client().Post("/v1/messages", headers, hi().dump(), "application/json");
  };
  EXPECT_EQ(ask({{"x-api-key", "secret"}, {"anthropic-version", "2023-06-01"}})->status, 200);
  EXPECT_EQ(ask({{"Authorization", "Bearer secret"}})->status, 200);
  EXPECT_EQ(error_in(ask({{"x-api-key", "other"}}), 401)["code"], "invalid_api_key");
  const json error = error_in(ask({}), 401);
  EXPECT_EQ(error["type"], "authentication_error");
  EXPECT_EQ(error["code"], "missing_api_key");
}

}  // namespace
}  // namespace pm::test
