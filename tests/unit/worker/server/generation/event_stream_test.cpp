// SPDX-License-Identifier: Apache-2.0
// Tests server-sent events over a real socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/server/support/api_test_server.h"
#include "tests/unit/worker/server/support/events.h"

namespace pm::test {
namespace {

TEST(Stream, JoinedChunksAreTheAnswerAndTheLastEventsEndIt) {
  ApiTestServer served;
  const auto result = served.post(
      {{"prompt", "ab\u4e16"}, {"max_tokens", 11}, {"stream", true}, {"stream_options", {{"include_usage", true}}}});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->get_header_value("Content-Type"), "text/event-stream; charset=utf-8");
  auto events = events_of(result->body);
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(events.back(), "[DONE]");
  events.pop_back();
  const auto usage = json::parse(events.back());
  EXPECT_EQ(usage["choices"], json::array());
  EXPECT_EQ(usage["usage"], json({{"prompt_tokens", 5},
                                  {"completion_tokens", 11},
                                  {"total_tokens", 16},
                                  {"prompt_tokens_details", {{"cached_tokens", 0}}}}));
  events.pop_back();
  std::string text;
  for (size_t i = 0; i < events.size(); ++i) {
    const auto event = json::parse(events[i]);  // the strict parser fails on half a character
    EXPECT_EQ(event["object"], "text_completion");
    EXPECT_EQ(event["id"], "cmpl-" + result->get_header_value("x-request-id"));
    text += event["choices"][0]["text"].get<std::string>();
    EXPECT_EQ(event["choices"][0]["finish_reason"], i + 1 == events.size() ? json("length") : json(nullptr));
  }
  EXPECT_EQ(text, "ab\u4e16ab\u4e16a");
}

TEST(Stream, TokensArriveAsTheyAreGenerated) {
  ApiTestServer served;
  served.engine.hold(true);
  RawSocket socket(served.api->bound_port());
  const std::string body = R"({"prompt": "abcdef", "max_tokens": 3, "stream": true})";
  socket.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) +
              "\r\n\r\n" + body);
  ASSERT_TRUE(eventually([&] { return served.engine.open() == 1; }));
  served.engine.allow(1);
  EXPECT_THAT(socket.read_until("\"text\":\"a\""), testing::HasSubstr("\"text\":\"a\""));
  served.engine.allow(1);
  EXPECT_THAT(socket.read_until("\"text\":\"b\""), testing::HasSubstr("\"text\":\"b\""));
  served.engine.hold(false);
  EXPECT_THAT(socket.read_until("[DONE]"), testing::HasSubstr("\"text\":\"c\""));
}

TEST(Stream, StopStringsAreNeverSentNotEvenInPart) {
  ApiTestServer served;
  const auto result = served.post({{"prompt", "hello STOP"}, {"max_tokens", 30}, {"stream", true}, {"stop", "STOP"}});
  ASSERT_TRUE(result);
  std::string text;
  json last;
  for (const auto& event : events_of(result->body)) {
    if (event == "[DONE]") break;
    last = json::parse(event)["choices"][0];
    text += last["text"].get<std::string>();
  }
  EXPECT_EQ(text, "hello ");
  EXPECT_EQ(last["finish_reason"], "stop");
}

TEST(Stream, PromptsAreDistinguishedByIndex) {
  ApiTestServer served;
  const auto result =
      served.post({{"prompt", {"ab", "cd"}}, {"max_tokens", 4}, {"stream", true}, {"return_token_ids", true}});
  ASSERT_TRUE(result);
  std::string text[2];
  std::vector<int32_t> ids[2];
  for (const auto& event : events_of(result->body)) {
    if (event == "[DONE]") break;
    const auto choice = json::parse(event)["choices"][0];
    const size_t index = choice["index"];
    text[index] += choice["text"].get<std::string>();
    for (int32_t id : choice["token_ids"]) ids[index].push_back(id);
  }
  EXPECT_EQ(text[0], "abab");
  EXPECT_EQ(text[1], "cdcd");
  EXPECT_THAT(ids[1], testing::ElementsAre('c', 'd', 'c', 'd'));
}

TEST(Stream, ChoicesEchoesAndLogprobsCarryTheIndex) {
  ApiTestServer served;
  const auto result = served.post({{"prompt", "abc"}, {"max_tokens", 4}, {"stream", true}, {"n", 2}, {"echo", true}});
  ASSERT_TRUE(result);
  std::string text[2];
  int ends = 0;
  for (const auto& event : events_of(result->body)) {
    if (event == "[DONE]") break;
    const auto choice = json::parse(event)["choices"][0];
    text[choice["index"].get<size_t>()] += choice["text"].get<std::string>();
    ends += choice["finish_reason"] == "length";
  }
  EXPECT_EQ(text[0], "abcabca");
  EXPECT_EQ(text[1], "abcbcab");
  EXPECT_EQ(ends, 2);

  json echoed = json::array();
  const auto with =
      served.post({{"prompt", "ab"}, {"max_tokens", 2}, {"stream", true}, {"logprobs", 0}, {"echo", true}});
  text[0].clear();
  for (const auto& event : events_of(with->body)) {
    if (event == "[DONE]") break;
    const auto choice = json::parse(event)["choices"][0];
    text[0] += choice["text"].get<std::string>();
    for (const json& one : choice["logprobs"]["token_logprobs"]) echoed.push_back(one);
  }
  EXPECT_EQ(text[0], "abab");
  EXPECT_EQ(echoed, json({nullptr, -1, -0.25, -0.25}));

  json tokens = json::array();
  const auto scored = served.post({{"prompt", "a\u4e16"}, {"max_tokens", 4}, {"stream", true}, {"logprobs", 1}});
  for (const auto& event : events_of(scored->body)) {
    if (event == "[DONE]") break;
    const json parsed = json::parse(event);
    for (const auto& token : parsed["choices"][0]["logprobs"]["tokens"]) tokens.push_back(token);
  }
  EXPECT_EQ(tokens, json({"a", "\uFFFD", "\uFFFD", "\uFFFD"})) << "each token is sent once";
}

TEST(Stream, AClientThatDoesNotReadIsCancelledAndDelaysNoOther) {
  ApiTestServer served({}, [](auto& options) { options.http.limits.write = std::chrono::milliseconds(500); });
  served.engine.hold(true);
  RawSocket socket(served.api->bound_port());
  const std::string body = json({{"prompt", std::vector<std::string>(32, "ab")},
                                 {"n", 128},
                                 {"max_tokens", 62},
                                 {"stream", true},
                                 {"logprobs", 20}})
                               .dump();
  socket.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) +
              "\r\n\r\n" + body);
  ASSERT_TRUE(eventually([&] { return served.engine.open() == 32; }));
  served.engine.allow(60);  // several hundred megabytes of events; no request ends by itself
  EXPECT_TRUE(eventually([&] { return served.engine.open() == 0; }, std::chrono::seconds(60)));
  EXPECT_EQ(served.engine.cancelled().size(), 32u);
  served.engine.hold(false);
  EXPECT_EQ(served.post({{"prompt", "a"}, {"max_tokens", 1}})->status, 200);
}

TEST(Stream, AFailureDuringTheStreamEndsItWithAnErrorEvent) {
  ApiTestServer served;
  served.engine.hold(true);
  std::thread fails([&] {
    EXPECT_TRUE(eventually([&] { return served.engine.open() == 1; }));
    served.engine.fail("rank 1 was lost");
  });
  const auto result = served.post({{"prompt", "a"}, {"max_tokens", 9}, {"stream", true}});
  fails.join();
  ASSERT_TRUE(result);
  const auto events = events_of(result->body);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_THAT(json::parse(events[0])["error"]["message"].get<std::string>(), testing::HasSubstr("rank 1 was lost"));
}

TEST(Stream, ARefusalBeforeTheFirstTokenIsAPlainError) {
  ApiTestServer served;
  error_of(served.post({{"prompt", "a"}, {"max_tokens", 100}, {"stream", true}}), 400);
  served.engine.limit_open(0);
  error_of(served.post({{"prompt", "a"}, {"stream", true}}), 429);
}

}  // namespace
}  // namespace pm::test
