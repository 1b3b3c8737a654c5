// SPDX-License-Identifier: Apache-2.0
// Tests the limits of the HTTP server against large, malformed and many requests.
#include "worker/server/http/http.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "tests/unit/worker/server/support/api_test_server.h"

namespace pm::test {
namespace {

using server::http::Request;
using server::http::Response;
using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::StartsWith;

struct Http {
  explicit Http(server::http::Handler handler, server::http::Options options = {}) {
    options.host = "127.0.0.1";
    server = std::make_unique<server::http::Server>(options, "test", std::move(handler));
    server->start();
  }
  httplib::Client client() const { return httplib::Client("127.0.0.1", server->bound_port()); }
  std::unique_ptr<server::http::Server> server;
};

Response echo(const Request& request) {
  Response response;
  response.body = json({{"method", request.method},
                        {"path", request.path},
                        {"query", request.query},
                        {"bytes", request.body.size()},
                        {"agent", request.header("user-agent")}})
                      .dump();
  return response;
}

TEST(HttpServer, TheHandlerSeesTheRequestAsSent) {
  Http http(echo);
  auto client = http.client();
  client.set_url_encode(false);
  const auto result = client.Post("/a%2Fb/c?x=1&y=%20", httplib::Headers{{"User-Agent", "t"}}, "12345", "text/plain");
  ASSERT_TRUE(result);
  EXPECT_EQ(json::parse(result->body),
            json({{"method", "POST"}, {"path", "/a%2Fb/c"}, {"query", "x=1&y=%20"}, {"bytes", 5}, {"agent", "t"}}));
}

TEST(HttpServer, IdsAreUniqueAndInEveryReply) {
  Http http(echo);
  auto client = http.client();
  client.set_keep_alive(true);
  std::set<std::string> ids;
  for (int i = 0; i < 20; ++i) ids.insert(client.Get("/")->get_header_value("x-request-id"));
  EXPECT_EQ(ids.size(), 20u);
  EXPECT_EQ(ids.count(""), 0u);
}

TEST(HttpServer, ABodyOverTheLimitIsRefusedHoweverItIsSent) {
  std::atomic<int> handled{0};
  Http http(
      [&](const Request& request) {
        ++handled;
        return echo(request);
      },
      {.payload_limit = 1000});
  EXPECT_EQ(http.client().Post("/", std::string(1000, 'x'), "text/plain")->status, 200);
  const auto error = error_of(http.client().Post("/", std::string(1001, 'x'), "text/plain"), 413);
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("1000 bytes"));
  error_of(http.client().Post("/", std::string(3 << 20, 'x'), "text/plain"), 413);
  RawSocket chunked(http.server->bound_port());
  chunked.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 20; ++i) chunked.send("64\r\n" + std::string(100, 'x') + "\r\n");
  chunked.send("0\r\n\r\n");
  EXPECT_THAT(chunked.read(), StartsWith("HTTP/1.1 413"));
  EXPECT_EQ(handled, 1);
}

TEST(HttpServer, MalformedRequestsGetAJsonErrorAndTheConnectionIsClosed) {
  Http http(echo);
  for (const std::string& request :
       {std::string("NONSENSE\r\n\r\n"), std::string("GET\r\n\r\n"), std::string("GET / HTTP/9.9\r\n\r\n"),
        std::string("FOO / HTTP/1.1\r\n\r\n"), std::string("GET / HTTP/1.1\r\nbroken header\x01\r\n\r\n"),
        "GET / HTTP/1.1\r\nX: " + std::string(20'000, 'x') + "\r\n\r\n",
        std::string("POST / HTTP/1.1\r\nContent-Length: nonsense\r\n\r\nabc"),
        std::string("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")}) {
    RawSocket socket(http.server->bound_port());
    socket.send(request);
    const std::string reply = socket.read();
    EXPECT_THAT(reply, StartsWith("HTTP/1.1 400")) << request.substr(0, 60);
    EXPECT_THAT(reply, HasSubstr("x-request-id: ")) << request.substr(0, 60);
    EXPECT_THAT(reply, HasSubstr("\"malformed_request\"")) << request.substr(0, 60);
  }
  RawSocket socket(http.server->bound_port());
  socket.send("GET /" + std::string(9000, 'x') + " HTTP/1.1\r\n\r\n");
  EXPECT_THAT(socket.read(), StartsWith("HTTP/1.1 414"));
  EXPECT_EQ(http.client().Get("/")->status, 200) << "the server goes on";
}

TEST(HttpServer, ASilentConnectionIsClosedAfterTheReadTimeout) {
  Http http(echo, {.limits = {.read = std::chrono::seconds(1), .idle = std::chrono::seconds(1)}});
  RawSocket silent(http.server->bound_port()), slow(http.server->bound_port());
  slow.send("GET / HTTP/1.1\r\nHost:");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(silent.read(), "");
  slow.read();
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(2900));
}

TEST(HttpServer, TheConnectionThatIsIdleForLongestMakesRoomForANewOne) {
  Http http(echo, {.connections = 3});
  const std::string request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  std::vector<std::unique_ptr<RawSocket>> sockets;
  const auto answers = [&](RawSocket& socket) {
    socket.send(request);
    return socket.read_until("}").starts_with("HTTP/1.1 200");
  };
  for (int i = 0; i < 3; ++i) {
    sockets.push_back(std::make_unique<RawSocket>(http.server->bound_port()));
    ASSERT_TRUE(answers(*sockets.back()));
  }
  ASSERT_TRUE(answers(*sockets[0])) << "now the second one is idle for longest";
  const auto start = std::chrono::steady_clock::now();
  RawSocket next(http.server->bound_port());
  EXPECT_TRUE(answers(next));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_EQ(sockets[1]->read(), "") << "closed between requests";
  EXPECT_TRUE(answers(*sockets[0]));
  EXPECT_TRUE(answers(*sockets[2]));
}

TEST(HttpServer, AConnectionIsIdleForLongerThanGatewaysKeepTheirs) {
  EXPECT_GE(server::http::Options().limits.idle, std::chrono::seconds(120));
}

TEST(HttpServer, AnExceptionIsA500ThatHidesItsTextAndNothingElseSuffers) {
  Http http([](const Request& request) -> Response {
    if (request.path == "/throw") throw std::runtime_error("secret");
    if (request.path == "/odd") throw 5;
    return echo(request);
  });
  for (const char* path : {"/throw", "/odd"}) {
    const auto result = http.client().Get(path);
    EXPECT_EQ(error_of(result, 500)["type"], "server_error");
    EXPECT_EQ(result->body.find("secret"), std::string::npos);
  }
  EXPECT_EQ(http.client().Get("/")->status, 200);
}

TEST(HttpServer, ConnectionsBeyondThreadsAndQueueAreClosedAndTheOthersServed) {
  std::promise<void> go;
  std::shared_future<void> gate = go.get_future().share();
  std::atomic<int> inside{0};
  Http http(
      [&, gate](const Request& request) {
        ++inside;
        gate.wait();
        return echo(request);
      },
      {.connections = 2, .waiting_connections = 1});
  std::vector<std::future<httplib::Result>> served;
  const auto get = [&] { return http.client().Get("/"); };
  for (int i = 0; i < 2; ++i) {
    served.push_back(std::async(std::launch::async, get));
    ASSERT_TRUE(eventually([&] { return inside == i + 1; }));
  }
  RawSocket waiting(http.server->bound_port());
  waiting.send("GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
  RawSocket beyond(http.server->bound_port());
  EXPECT_EQ(beyond.read(), "");
  go.set_value();
  for (auto& one : served) EXPECT_EQ(one.get()->status, 200);
  EXPECT_THAT(waiting.read(), StartsWith("HTTP/1.1 200"));
}

TEST(HttpServer, RangesAreIgnored) {
  Http http(echo);
  const auto result = http.client().Get("/", {{"Range", "bytes=0-1"}});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->status, 200);
  EXPECT_TRUE(json::accept(result->body));
}

TEST(HttpServer, StopWaitsForTheReplyInProgress) {
  std::atomic<bool> entered{false};
  Http http([&](const Request& request) {
    entered = true;
    std::this_thread::sleep_for(milliseconds(100));
    return echo(request);
  });
  auto reply = std::async(std::launch::async, [&] { return http.client().Get("/"); });
  ASSERT_TRUE(eventually([&] { return entered.load(); }));
  http.server->stop();
  const auto result = reply.get();
  ASSERT_TRUE(result);
  EXPECT_TRUE(json::accept(result->body));
}

TEST(HttpClient, GetGivesTheBodyOrNothingWithinTheDeadline) {
  std::promise<void> go;
  Http http([&, gate = go.get_future().share()](const Request& request) {
    Response response = echo(request);
    if (request.path == "/slow") gate.wait();
    if (request.path == "/missing") response.status = 404;
    if (request.path == "/large") response.body.assign(100'000, 'x');
    return response;
  });
  const int port = http.server->bound_port();
  EXPECT_TRUE(server::http::get("127.0.0.1", port, "/", milliseconds(500), 1000));
  EXPECT_FALSE(server::http::get("127.0.0.1", port, "/missing", milliseconds(500), 1000));
  EXPECT_FALSE(server::http::get("127.0.0.1", port, "/large", milliseconds(500), 1000));
  EXPECT_FALSE(server::http::get("127.0.0.1", 1, "/", milliseconds(500), 1000));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(server::http::get("127.0.0.1", port, "/slow", milliseconds(300), 1000));
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(1500));
  go.set_value();
}

TEST(Router, UnknownPathsAndMethodsSayWhatThereIs) {
  ApiTestServer served;
  EXPECT_THAT(error_of(served.get("/nothing"), 404)["message"].get<std::string>(), HasSubstr("POST /v1/completions"));
  EXPECT_EQ(json::parse(served.get("/")->body)["task"], "generate");
  error_of(served.client().Post("/v1/chat/nothing", "{}", "application/json"), 404);
  EXPECT_THAT(error_of(served.get("/v1/completions"), 405)["message"].get<std::string>(), HasSubstr("POST"));
  error_of(served.client().Delete("/v1/models"), 405);
  EXPECT_EQ(served.client().Head("/health")->status, 200);
  EXPECT_EQ(served.client().Head("/generate_text/a")->status, 405);
  EXPECT_TRUE(served.engine.submitted_requests().empty());
  error_of(served.get("/" + std::string(8000, 'x')), 404);
}

TEST(Models, TheModelIsListedAndFoundByItsName) {
  ApiTestServer served;
  const auto list = json::parse(served.get("/v1/models")->body);
  EXPECT_EQ(list["object"], "list");
  EXPECT_EQ(list["data"][0]["id"], "org/tiny");
  EXPECT_EQ(list["data"][0]["max_model_len"], 64);
  EXPECT_EQ(json::parse(served.get("/v1/models/org/tiny")->body)["id"], "org/tiny");
  EXPECT_EQ(json::parse(served.get("/v1/models/org%2Ftiny")->body)["id"], "org/tiny");
  EXPECT_EQ(error_of(served.get("/v1/models/other"), 404)["code"], "model_not_found");
}

TEST(Models, SeveralNamesAreOneModelAndTheFirstStandsInReplies) {
  ApiTestServer served({}, [](server::ApiOptions& options) { options.names = {"stories", "stories-v2"}; });
  const auto list = json::parse(served.get("/v1/models")->body)["data"];
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[1]["id"], "stories-v2");
  EXPECT_EQ(json::parse(served.get("/v1/models/stories-v2")->body)["id"], "stories-v2");
  for (const char* name : {"stories", "stories-v2"}) {
    const auto reply = served.post({{"model", name}, {"prompt", "ab"}, {"max_tokens", 1}});
    ASSERT_EQ(reply->status, 200) << reply->body;
    EXPECT_EQ(json::parse(reply->body)["model"], "stories");
  }
  const auto error = error_of(served.post({{"model", "org/tiny"}, {"prompt", "ab"}}), 404);
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("\"stories\", \"stories-v2\""));
}

}  // namespace
}  // namespace pm::test
