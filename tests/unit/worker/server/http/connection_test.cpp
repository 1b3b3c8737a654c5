// SPDX-License-Identifier: Apache-2.0
// Tests slow, broken and greedy clients over real sockets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/socket.h>

#include "tests/unit/worker/server/support/api_test_server.h"

namespace pm::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::HasSubstr;
using testing::StartsWith;

constexpr milliseconds late_reply{4000};  // generous: the machine may be busy

ApiTestServer limited(const server::ConnectionLimits& limits) {
  return ApiTestServer({}, [&](server::ApiOptions& options) { options.http.limits = limits; });
}

size_t count(const std::string& text, const std::string& word) {
  size_t n = 0;
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++n;
  return n;
}

/// Sends `byte` every 50 ms until the server closes the connection.
std::string drip(const ApiTestServer& served, const std::string& start, const std::string& byte) {
  RawSocket socket(served.api->bound_port());
  socket.send(start);
  const auto end = steady_clock::now() + late_reply;
  std::string reply;
  while (steady_clock::now() < end && reply.empty()) {
    socket.send(byte);
    reply = socket.read_until("\r\n\r\n", milliseconds(50));
  }
  EXPECT_LT(steady_clock::now(), end) << "still connected";
  return reply;
}

TEST(Connection, HeadersThatDripEndWithTheirTime) {
  const ApiTestServer served = limited({.head = milliseconds(500)});
  EXPECT_THAT(drip(served, "GET /health HTTP/1.1\r\n", "X: y\r\n"), StartsWith("HTTP/1.1 408 "));
  EXPECT_THAT(drip(served, "GET /heal", "t"), StartsWith("HTTP/1.1 408 "));
  EXPECT_EQ(served.get("/health")->status, 200);
}

TEST(Connection, BodiesThatDripEndWithTheirTime) {
  const ApiTestServer served = limited({.body = milliseconds(500)});
  EXPECT_THAT(drip(served, "POST /v1/completions HTTP/1.1\r\nContent-Length: 1000\r\n\r\n", "x"),
              StartsWith("HTTP/1.1 4"));
  EXPECT_THAT(drip(served, "POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n"),
              StartsWith("HTTP/1.1 4"));
  EXPECT_EQ(served.get("/health")->status, 200);
}

TEST(Connection, AClientThatReadsNothingIsLetGo) {
  const ApiTestServer served = limited({.write = milliseconds(500)});
  RawSocket deaf(served.api->bound_port());
  const int small = 4096;
  setsockopt(deaf.descriptor(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  std::string requests;
  for (int i = 0; i < 2000; ++i) requests += "GET /openapi.json HTTP/1.1\r\n\r\n";
  deaf.send(requests.substr(0, 32 << 10));
  EXPECT_TRUE(eventually(
      [&] {
        char byte = 0;
        return send(deaf.descriptor(), "G", 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN &&
               recv(deaf.descriptor(), &byte, 0, MSG_DONTWAIT) <= 0;
      },
      late_reply * 4));
  EXPECT_EQ(served.get("/health")->status, 200);
}

TEST(Connection, HeadersBeyondTheirSizeAreRefusedBeforeTheyAreHeld) {
  const ApiTestServer served = limited({.head_bytes = 32 << 10});
  RawSocket socket(served.api->bound_port());
  socket.send("GET / HTTP/1.1\r\nX: ");
  for (int i = 0; i < 200; ++i) socket.send(std::string(1000, 'x'));  // one line without an end
  const std::string reply = socket.read();
  EXPECT_THAT(reply, StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(reply, HasSubstr("\"header_too_large\""));
  EXPECT_THAT(reply, HasSubstr("x-request-id: "));
  RawSocket many(served.api->bound_port());
  many.send("GET / HTTP/1.1\r\n");
  for (int i = 0; i < 150; ++i) many.send("X-" + std::to_string(i) + ": y\r\n");
  many.send("\r\n");
  EXPECT_THAT(many.read(), StartsWith("HTTP/1.1 400 "));
}

TEST(Connection, RequestsSentTogetherAreAnsweredInTheirOrder) {
  const ApiTestServer served = limited({.idle = milliseconds(300)});
  RawSocket socket(served.api->bound_port());
  const std::string body = R"({"prompt": "ab", "max_tokens": 2})";
  const std::string post =
      "POST /v1/completions HTTP/1.1\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  socket.send("GET /version HTTP/1.1\r\n\r\n" + post + "\r\nGET /v1/models HTTP/1.1\r\n\r\n" + post +
              "GET /health HTTP/1.1\r\nConnection: close\r\n\r\n");
  const std::string replies = socket.read();
  EXPECT_EQ(count(replies, "HTTP/1.1 200 OK"), 5u) << replies;
  const size_t version = replies.find("\"version\""), first = replies.find("text_completion"),
               models = replies.find("\"list\""), second = replies.rfind("text_completion"),
               health = replies.find("serving");
  EXPECT_LT(version, first);
  EXPECT_LT(first, models);
  EXPECT_LT(models, second);
  EXPECT_LT(second, health);
}

TEST(Connection, ARequestInPiecesIsOneRequest) {
  const ApiTestServer served;
  RawSocket socket(served.api->bound_port());
  for (const std::string part : {"\r\n", "GET /ver", "sion HT", "TP/1.1\r", "\n", "Connection: close\r\n\r", "\n"}) {
    socket.send(part);
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_THAT(socket.read(), StartsWith("HTTP/1.1 200 "));
}

TEST(Connection, AHalfClosedClientHasGone) {
  ApiTestServer served;
  served.engine.hold(true);
  RawSocket socket(served.api->bound_port());
  const std::string body = R"({"prompt": "ab", "max_tokens": 2})";
  socket.send("POST /v1/completions HTTP/1.1\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body +
              "GET /health HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return served.engine.open() == 1; }));
  shutdown(socket.descriptor(), SHUT_WR);
  EXPECT_TRUE(eventually([&] { return served.engine.cancelled().size() == 1; }))
      << "although another request lies unread on the connection";
}

TEST(Connection, LengthsThatTwoReadersCouldReadDifferentlyAreRefused) {
  const ApiTestServer served;
  for (const std::string lengths :
       {"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", "Content-Length: 4\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: gzip, chunked\r\n", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"}) {
    RawSocket socket(served.api->bound_port());
    socket.send("POST /v1/completions HTTP/1.1\r\n" + lengths + "\r\n0\r\n\r\nGET /health HTTP/1.1\r\n\r\n");
    const std::string reply = socket.read();
    EXPECT_THAT(reply, StartsWith("HTTP/1.1 400 ")) << lengths;
    EXPECT_EQ(count(reply, "HTTP/1.1"), 1u) << "what follows is no request: " << lengths;
  }
  RawSocket hidden(served.api->bound_port());
  hidden.send("GET /health HTTP/1.1\r\nContent-Length: 27\r\n\r\nGET /plan HTTP/1.1\r\nX: y\r\n\r\n");
  EXPECT_EQ(count(hidden.read(), "HTTP/1.1 "), 1u) << "a GET's body is no request";
}

TEST(Connection, TheClientsOwnIdIsRepeatedHarmless) {
  const ApiTestServer served;
  const auto answer = [&](const std::string& id) {
    RawSocket socket(served.api->bound_port());
    socket.send("GET /health HTTP/1.1\r\nConnection: close\r\nX-Request-Id: " + id + "\r\n\r\n");
    return socket.read();
  };
  EXPECT_THAT(answer("a-B_7.c:d/e+f=g@h"), HasSubstr("\r\nx-client-request-id: a-B_7.c:d/e+f=g@h\r\n"));
  EXPECT_THAT(answer("a b\"<c>;\xff"), HasSubstr("\r\nx-client-request-id: a_b__c___\r\n"));
  EXPECT_THAT(answer(std::string(500, 'x')), HasSubstr("x-client-request-id: " + std::string(128, 'x') + "\r\n"));
  EXPECT_EQ(served.get("/health")->get_header_value("x-client-request-id"), "");
  testing::internal::CaptureStderr();
  served.client().Get("/plan", {{"X-Request-Id", "mine-1"}});
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(" client_id=mine-1 route=\"GET /plan\""));
}

TEST(Connection, BadJsonIsABadRequestWhateverIsBadAboutIt) {
  const ApiTestServer served;
  const std::string deep(100'000, '[');
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("[]"), std::string("null"), deep, "{\"a\":" + deep,
        std::string("{\"prompt\": \"\xff\xfe\"}"), std::string("{\"prompt\": \"\\ud800\"}"),
        std::string("{\"prompt\": \"a\", \"temperature\": NaN}"),
        std::string("{\"prompt\": \"a\", \"temperature\": Infinity}"),
        std::string("{\"prompt\": \"a\", \"temperature\": 1e999}"),
        std::string("{\"prompt\": \"a\", \"seed\": 99999999999999999999999}"),
        std::string("\xEF\xBB\xBF{\"prompt\": 5}"), std::string("{\"prompt\": \"a\"} {}"), std::string(1, '\0')})
    error_of(served.client().Post("/v1/completions", body, "application/json"), 400);
  EXPECT_TRUE(served.engine.submitted_requests().empty());
}

}  // namespace
}  // namespace pm::test
