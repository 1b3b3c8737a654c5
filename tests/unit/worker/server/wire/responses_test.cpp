// SPDX-License-Identifier: Apache-2.0
// Writes chat completions as OpenAI's responses, and serves POST /v1/responses over a real socket. The fake engine
// repeats the prompt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/server/support/api_test_server.h"
#include "tests/unit/worker/server/support/events.h"
#include "tests/unit/worker/server/wire/chat_chunks.h"
#include "worker/server/wire/responses_form.h"

namespace pm::test {
namespace {

using server::ResponsesForm;
using server::StoredResponse;
using testing::HasSubstr;

struct Form {
  std::vector<StoredResponse> stored;
  ResponsesForm form{
      server::ResponseHead{
          .id = "resp_1",
          .model = "tiny",
          .created_at = 7,
          .request = {.chat = {},
                      .conversation = nlohmann::ordered_json::parse(R"([{"role": "user", "content": "Weather?"}])"),
                      .items = nlohmann::ordered_json::parse(R"([{"type": "message"}])"),
                      .settings = {{"metadata", {{"k", "v"}}}}}},
      [this](const std::string&, StoredResponse one) { stored.push_back(std::move(one)); }};
};

const json output = json::parse(R"([
  {"id": "rs_resp_1_0", "type": "reasoning", "status": "completed", "summary": [],
   "content": [{"type": "reasoning_text", "text": "Hm."}]},
  {"id": "msg_resp_1_1", "type": "message", "status": "completed", "role": "assistant",
   "content": [{"type": "output_text", "text": "One moment.", "annotations": [], "logprobs": []}]},
  {"id": "fc_resp_1_2", "type": "function_call", "status": "completed", "call_id": "call_1", "name": "weather",
   "arguments": "{\"city\": \"Rom\"}"},
  {"id": "fc_resp_1_3", "type": "function_call", "status": "completed", "call_id": "call_2", "name": "clock",
   "arguments": ""}])");

httplib::Result post(const ApiTestServer& served, const json& body) {
  return served.client().Post("/v1/responses", body.dump(), "application/json");
}

json post_ok(const ApiTestServer& served, const json& body) {
  const auto result = post(served, body);
  EXPECT_EQ(result->status, 200) << result->body;
  return json::parse(result->body);
}

std::string prompt_of(const ApiTestServer& served) {
  return served.tokenizer.decode(served.engine.submitted_requests().back().prompt, false);
}

TEST(ResponsesForm, AWholeReplyHasAnItemForEachPart) {
  Form made;
  const json response = json::parse(made.form.reply(tool_call_completion()));
  EXPECT_EQ(response["output"], output);
  EXPECT_EQ(response["status"], "completed");
  EXPECT_EQ(response["metadata"], json({{"k", "v"}}));
  EXPECT_EQ(response["usage"], json::parse(R"({"input_tokens": 9, "output_tokens": 11, "total_tokens": 20,
    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 3}})"));
  ASSERT_EQ(made.stored.size(), 1u);
  EXPECT_EQ(json::parse(made.stored[0].body), response);
  EXPECT_EQ(json::parse(made.stored[0].items), json::parse(R"([{"id": "msg_resp_1_in0", "type": "message"}])"));
  EXPECT_EQ(json::parse(made.stored[0].conversation), json::parse(R"([
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "reasoning_content": "Hm.", "content": "One moment.", "tool_calls": [
      {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Rom\"}"}},
      {"id": "call_2", "type": "function", "function": {"name": "clock", "arguments": ""}}]}])"));
}

TEST(ResponsesForm, AStreamSaysEachItemAndEndsWithTheWholeReply) {
  Form made;
  std::string text;
  for (const json& chunk : tool_call_chunks()) text += made.form.events(chunk);
  const auto events = named_events_of(text + made.form.end());
  std::vector<std::string> names;
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i]["sequence_number"], i);
    names.push_back(events[i]["type"].get<std::string>().substr(9));
  }
  EXPECT_EQ(names, (std::vector<std::string>{"created",
                                             "in_progress",
                                             "output_item.added",
                                             "content_part.added",
                                             "reasoning_text.delta",
                                             "reasoning_text.delta",
                                             "reasoning_text.done",
                                             "content_part.done",
                                             "output_item.done",
                                             "output_item.added",
                                             "content_part.added",
                                             "output_text.delta",
                                             "output_text.done",
                                             "content_part.done",
                                             "output_item.done",
                                             "output_item.added",
                                             "function_call_arguments.delta",
                                             "function_call_arguments.delta",
                                             "function_call_arguments.done",
                                             "output_item.done",
                                             "output_item.added",
                                             "function_call_arguments.done",
                                             "output_item.done",
                                             "completed"}));
  EXPECT_EQ(events.back()["response"]["output"], output);
  json items = json::array();
  for (const json& event : events) {
    if (event["type"] == "response.output_item.added") {
      EXPECT_EQ(event["item"]["status"], "in_progress");
      EXPECT_EQ(event["output_index"], items.size());
    }
    if (event["type"] == "response.output_item.done") items.push_back(event["item"]);
  }
  EXPECT_EQ(items, output);
  EXPECT_EQ(events[0]["response"]["status"], "in_progress");
  EXPECT_EQ(made.stored.size(), 1u);
}

TEST(ResponsesForm, ACutReplyIsIncompleteAndSoIsItsLastItem) {
  Form made;
  auto chunks = tool_call_chunks();
  chunks[8]["choices"][0]["finish_reason"] = "length";
  std::string text;
  for (const json& chunk : chunks) text += made.form.events(chunk);
  const auto events = named_events_of(text + made.form.end());
  EXPECT_EQ(events.back()["type"], "response.incomplete");
  const json response = events.back()["response"];
  EXPECT_EQ(response["incomplete_details"], json({{"reason", "max_output_tokens"}}));
  EXPECT_EQ(response["output"][2]["status"], "completed");
  EXPECT_EQ(response["output"][3]["status"], "incomplete");
  EXPECT_EQ(events[events.size() - 2]["item"], response["output"][3]);
}

TEST(Responses, AReplyHasOpenAisForm) {
  ApiTestServer served;
  const json response = post_ok(served, {{"model", "org/tiny"}, {"input", "hi"}, {"max_output_tokens", 6}});
  EXPECT_EQ(response["object"], "response");
  EXPECT_EQ(response["created_at"], 1700000000);
  EXPECT_EQ(response["status"], "incomplete");
  EXPECT_EQ(response["output"][0]["content"][0]["text"], "<user>");
  EXPECT_EQ(response["max_output_tokens"], 6);
  EXPECT_EQ(response["store"], true);
  EXPECT_EQ(response["usage"]["total_tokens"], 28);
  const json cut = post_ok(served, {{"input", "hi"}, {"max_output_tokens", 64000}, {"store", false}});
  EXPECT_EQ(cut["usage"]["output_tokens"], 42);
}

TEST(Responses, LogprobsAreThoseOfTheText) {
  ApiTestServer served([](const engine::Request&, int64_t step) { return step == 0 ? 'A' : 0xE4; });
  const json response = post_ok(
      served,
      {{"input", "a"}, {"max_output_tokens", 2}, {"include", {"message.output_text.logprobs"}}, {"top_logprobs", 1}});
  const json logprobs = response["output"][0]["content"][0]["logprobs"];
  ASSERT_EQ(logprobs.size(), 2u);
  EXPECT_EQ(logprobs[0]["token"], "A");
  EXPECT_EQ(logprobs[0]["top_logprobs"].size(), 1u);
  EXPECT_EQ(logprobs[1]["bytes"], json::array()) << "part of a character";
}

TEST(Responses, AResponseIsContinuedFetchedAndForgotten) {
  ApiTestServer served;
  const json first = post_ok(served, {{"input", "x"}, {"max_output_tokens", 2}, {"instructions", "I"}});
  EXPECT_EQ(prompt_of(served), "<system>I</><user>x</><assistant>");
  const std::string id = first["id"];
  EXPECT_EQ(id.size(), 37u) << "128 random bits";
  const json second = post_ok(served, {{"input", "y"}, {"max_output_tokens", 1}, {"previous_response_id", id}});
  EXPECT_EQ(prompt_of(served), "<user>x</><assistant><s</><user>y</><assistant>");
  EXPECT_EQ(second["previous_response_id"], id);
  const auto fetched = served.get("/v1/responses/" + id);
  EXPECT_EQ(json::parse(fetched->body), first);
  EXPECT_EQ(error_of(served.get("/v1/responses/" + id + "?stream=true"), 400)["param"], "stream");
  EXPECT_EQ(json::parse(served.client().Delete("/v1/responses/" + id)->body),
            json({{"id", id}, {"object", "response"}, {"deleted", true}}));
  EXPECT_EQ(error_of(served.get("/v1/responses/" + id), 404)["code"], "response_not_found");
  EXPECT_EQ(error_of(served.client().Delete("/v1/responses/" + id), 404)["code"], "response_not_found");
  const auto error = error_of(post(served, {{"input", "y"}, {"previous_response_id", id}}), 400);
  EXPECT_EQ(error["param"], "previous_response_id");
  const json unstored = post_ok(served, {{"input", "x"}, {"max_output_tokens", 1}, {"store", false}});
  error_of(served.get("/v1/responses/" + unstored["id"].get<std::string>()), 404);
}

json items_of(const ApiTestServer& served, const std::string& id, const std::string& query) {
  const auto result = served.get("/v1/responses/" + id + "/input_items" + query);
  EXPECT_EQ(result->status, 200) << result->body;
  return json::parse(result->body);
}

TEST(Responses, ItemsOfTheInputAreListedWithThoseOfEarlierTurns) {
  ApiTestServer served;
  const json first = post_ok(served, {{"input", "x"}, {"max_output_tokens", 2}, {"instructions", "I"}});
  const std::string id = first["id"];
  const json question = {{"id", "msg_" + id + "_in0"},
                         {"type", "message"},
                         {"status", "completed"},
                         {"role", "user"},
                         {"content", json::array({{{"type", "input_text"}, {"text", "x"}}})}};
  EXPECT_EQ(items_of(served, id, ""), (json{{"object", "list"},
                                            {"data", {question}},
                                            {"first_id", question["id"]},
                                            {"last_id", question["id"]},
                                            {"has_more", false}}));
  const json second = post_ok(served, {{"input", json::array({{{"role", "user"}, {"content", "y"}, {"id", "msg_1"}}})},
                                       {"max_output_tokens", 1},
                                       {"previous_response_id", id}});
  const json page = items_of(served, second["id"], "?order=asc&limit=2");
  EXPECT_EQ(page["data"], json::array({question, first["output"][0]}));
  EXPECT_EQ(page["has_more"], true);
  const json rest = items_of(served, second["id"], "?order=asc&after=" + page["last_id"].get<std::string>());
  EXPECT_EQ(rest["first_id"], "msg_1");
  EXPECT_EQ(rest["has_more"], false);
  EXPECT_EQ(items_of(served, second["id"], "")["first_id"], "msg_1") << "the last item comes first";
}

TEST(Responses, ItemsOfAnUnknownResponseAndWrongPagesAreRefused) {
  ApiTestServer served;
  const auto error = error_of(served.get("/v1/responses/resp_1/input_items"), 404);
  EXPECT_EQ(error["code"], "response_not_found");
  EXPECT_EQ(error["param"], "response_id");
  const std::string path =
      "/v1/responses/" + post_ok(served, {{"input", "x"}})["id"].get<std::string>() + "/input_items";
  for (const char* name : {"limit=0", "limit=101", "limit=x", "limit=", "order=up", "after=msg_0"}) {
    const std::string query = name;
    EXPECT_EQ(error_of(served.get(path + "?" + query), 400)["param"], query.substr(0, query.find('='))) << query;
  }
  EXPECT_EQ(served.get(path + "?before=a&include[]=x")->get_header_value("x-ignored-fields"), "before");
  EXPECT_EQ(served.client().Head(path)->status, 200);
  EXPECT_EQ(error_of(served.client().Put(path), 405)["code"], "method_not_allowed");
  const json unstored = post_ok(served, {{"input", "x"}, {"max_output_tokens", 1}, {"store", false}});
  error_of(served.get("/v1/responses/" + unstored["id"].get<std::string>() + "/input_items"), 404);
}

TEST(Responses, TokensOfAPromptAreCountedWithoutAnAnswer) {
  ApiTestServer served;
  const std::string id = post_ok(served, {{"input", "x"}, {"max_output_tokens", 1}})["id"];
  const size_t submitted = served.engine.submitted_requests().size();
  const auto count = [&](const json& body) {
    return served.client().Post("/v1/responses/input_tokens", body.dump(), "application/json");
  };
  EXPECT_EQ(json::parse(count({{"input", "hi"}, {"instructions", "I"}})->body),
            json({{"object", "response.input_tokens"},
                  {"input_tokens", std::string("<system>I</><user>hi</><assistant>").size()}}));
  EXPECT_EQ(json::parse(count({{"input", "hi"}, {"previous_response_id", id}})->body)["input_tokens"],
            std::string("<user>x</><assistant><</><user>hi</><assistant>").size());
  EXPECT_EQ(error_of(count({{"input", 5}}), 400)["param"], "input");
  EXPECT_EQ(error_of(count({{"input", "a"}, {"previous_response_id", "resp_1"}}), 400)["code"], "response_not_found");
  EXPECT_EQ(served.engine.submitted_requests().size(), submitted);
}

TEST(Responses, AStreamIsStoredToo) {
  ApiTestServer served;
  const auto result = post(served, {{"input", "hi"}, {"max_output_tokens", 6}, {"stream", true}, {"foo", 1}});
  EXPECT_EQ(result->get_header_value("x-ignored-fields"), "foo");
  const auto events = named_events_of(result->body);
  std::string text;
  for (const json& event : events)
    if (event["type"] == "response.output_text.delta") text += event["delta"].get<std::string>();
  EXPECT_EQ(text, "<user>");
  const json response = events.back()["response"];
  EXPECT_EQ(json::parse(served.get("/v1/responses/" + response["id"].get<std::string>())->body), response);
}

TEST(Responses, ErrorsNameTheClientsFields) {
  ApiTestServer served;
  const auto error = error_of(post(served, {{"input", std::string(80, 'x')}}), 400);
  EXPECT_EQ(error["param"], "input");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("input has"));
  EXPECT_EQ(error_of(post(served, {{"input", "a"}, {"tool_choice", "sometimes"}}), 400)["param"], "tool_choice");
  EXPECT_EQ(error_of(post(served, {{"input", "a"}, {"temperature", 3}}), 400)["param"], "temperature");
  error_of(post(served, {{"input", "a"}, {"model", "gpt-5"}}), 404);
  ApiTestServer strict({}, [](auto& options) { options.strict_requests = true; });
  EXPECT_EQ(error_of(post(strict, {{"input", "a"}, {"foo", 1}}), 400)["code"], "unknown_field");
}

TEST(Responses, AFailureDuringTheStreamIsAFailedResponseAndIsNotStored) {
  ApiTestServer served;
  served.engine.hold(true);
  RawSocket socket(served.api->bound_port());
  const std::string body = json({{"input", "hi"}, {"stream", true}}).dump();
  socket.send("POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
              body);
  ASSERT_TRUE(eventually([&] { return served.engine.open() == 1; }));
  const std::string start = socket.read_until("event: response.in_progress");
  served.engine.fail("a rank was lost");
  EXPECT_THAT(socket.read_until("server_error"), HasSubstr("event: response.failed"));
  const size_t at = start.find("resp_");
  ASSERT_NE(at, start.npos);
  error_of(served.get("/v1/responses/" + start.substr(at, 37)), 404);
}

TEST(Responses, ADisconnectedClientCancelsItsRequest) {
  ApiTestServer served;
  served.engine.hold(true);
  for (const bool stream : {false, true}) {
    {
      RawSocket socket(served.api->bound_port());
      const std::string body = json({{"input", "hi"}, {"stream", stream}}).dump();
      socket.send("POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) +
                  "\r\n\r\n" + body);
      ASSERT_TRUE(eventually([&] { return served.engine.open() == 1; }));
    }
    EXPECT_TRUE(eventually([&] { return served.engine.open() == 0; })) << stream;
  }
}

}  // namespace
}  // namespace pm::test
