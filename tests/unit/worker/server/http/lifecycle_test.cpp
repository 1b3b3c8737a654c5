// SPDX-License-Identifier: Apache-2.0
// Tests loading, failing and draining servers, and clients that disconnect.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <thread>

#include "tests/unit/worker/server/support/api_test_server.h"
#include "worker/base/error.h"

namespace pm::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::HasSubstr;

void set_state(comm::StatusTable& status_table, int rank, comm::RankState state) {
  status_table.rank(rank).state = static_cast<uint32_t>(state);
}

const json long_request = {{"prompt", "a"}, {"max_tokens", 60}};

TEST(Lifecycle, WhileARankLoadsGenerationIsRefusedAndTheRestAnswers) {
  ApiTestServer served;
  set_state(*served.status_table, 1, comm::RankState::Loading);
  const auto result = served.post({{"prompt", "a"}});
  EXPECT_EQ(error_of(result, 503)["code"], "loading");
  EXPECT_FALSE(result->get_header_value("Retry-After").empty());
  error_of(served.get("/generate_text/a"), 503);
  EXPECT_EQ(served.get("/health")->status, 503);
  EXPECT_EQ(served.get("/v1/models")->status, 200);
  EXPECT_EQ(served.get("/memory")->status, 200);
  set_state(*served.status_table, 1, comm::RankState::Ready);
  EXPECT_EQ(served.post({{"prompt", "a"}})->status, 200);
  EXPECT_EQ(json::parse(served.get("/health")->body), json({{"status", "serving"}}));
}

TEST(Lifecycle, AFullQueueIsTooManyRequestsWithRetryAfter) {
  ApiTestServer served;
  served.engine.limit_open(0);
  const auto result = served.post({{"prompt", "a"}});
  EXPECT_EQ(error_of(result, 429)["code"], "queue_full");
  EXPECT_EQ(result->get_header_value("Retry-After"), "1");
  EXPECT_THAT(served.get("/metrics")->body,
              HasSubstr("parallelmodel_requests_rejected_total{reason=\"queue_full\"} 1"));
}

TEST(Lifecycle, ALostRankFailsOpenRequestsAndRefusesNewOnes) {
  ApiTestServer served;
  served.engine.hold(true);
  auto open = std::async(std::launch::async, [&] { return served.post(long_request); });
  ASSERT_TRUE(eventually([&] { return served.engine.open() == 1; }));
  served.engine.fail("rank 1 was killed");
  const auto reply = open.get();
  const auto error = error_of(reply, 503);
  EXPECT_EQ(error["code"], "rank_lost");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("rank 1 was killed"));
  EXPECT_EQ(error_of(served.post({{"prompt", "a"}}), 503)["code"], "rank_lost");
  served.status_table->fail(1, Reason::RankLost, "killed", 5);
  EXPECT_EQ(json::parse(served.get("/health")->body)["status"], "rank_lost");
}

TEST(Lifecycle, AClientThatLeavesCancelsItsPlainRequestWithinASecond) {
  ApiTestServer served;
  served.engine.hold(true);
  {
    RawSocket socket(served.api->bound_port());
    socket.send("GET /generate_text/ab HTTP/1.1\r\nHost: x\r\n\r\n");
    ASSERT_TRUE(eventually([&] { return served.engine.open() == 1; }));
    EXPECT_TRUE(served.engine.cancelled().empty());
  }
  EXPECT_TRUE(eventually([&] { return served.engine.open() == 0; }, milliseconds(1000)));
  EXPECT_EQ(served.engine.cancelled().size(), 1u);
  EXPECT_TRUE(eventually([&] {
    return served.get("/metrics")->body.find("finished_total{reason=\"cancelled\"} 1") != std::string::npos;
  }));
}

TEST(Lifecycle, AClientThatLeavesCancelsItsStreamWithinASecondAllPromptsOfIt) {
  ApiTestServer served;
  served.engine.hold(true);
  {
    RawSocket socket(served.api->bound_port());
    const std::string body = R"({"prompt": ["ab", "cd"], "max_tokens": 60, "stream": true})";
    socket.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) +
                "\r\n\r\n" + body);
    ASSERT_TRUE(eventually([&] { return served.engine.open() == 2; }));
    served.engine.allow(1);
    EXPECT_THAT(socket.read_until("\"text\":\"c\""), HasSubstr("\"text\":\"a\""));
  }
  EXPECT_TRUE(eventually([&] { return served.engine.open() == 0; }, milliseconds(1000)));
  EXPECT_EQ(served.engine.cancelled().size(), 2u);
}

TEST(Lifecycle, ADrainFinishesWhatRunsAcceptsForAWhileThenRefuses) {
  ApiTestServer served({}, [](auto& options) { options.accept_while_draining = milliseconds(400); });
  served.engine.hold(true);
  auto open = std::async(std::launch::async, [&] { return served.post(long_request); });
  ASSERT_TRUE(eventually([&] { return served.engine.open() == 1; }));
  auto drained = std::async(std::launch::async, [&] { return served.api->drain(std::chrono::seconds(20)); });
  ASSERT_TRUE(eventually(
      [&] { return served.status_table->rank(0).state == static_cast<uint32_t>(comm::RankState::Draining); }));

  auto late =
      std::async(std::launch::async, [&] { return served.post(long_request); });  // within accept_while_draining
  ASSERT_TRUE(eventually([&] { return served.engine.open() == 2; }));
  EXPECT_EQ(json::parse(served.get("/health")->body)["status"], "draining");

  ASSERT_TRUE(eventually([&] { return served.post({{"prompt", "a"}, {"max_tokens", -1}})->status == 503; }));
  const auto refused = served.post({{"prompt", "a"}});
  EXPECT_EQ(error_of(refused, 503)["code"], "draining");
  EXPECT_EQ(refused->get_header_value("Connection"), "close");

  EXPECT_EQ(drained.wait_for(milliseconds(50)), std::future_status::timeout) << "requests are still open";
  served.engine.hold(false);
  EXPECT_TRUE(drained.get());
  const auto first = open.get(), second = late.get();
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->status, 200);
  EXPECT_EQ(second->status, 200);
  EXPECT_EQ(second->get_header_value("Connection"), "close");
  served.api->stop();
}

TEST(Lifecycle, ADrainThatRunsOutOfTimeSaysSoAndStopAnswersWhatIsLeft) {
  ApiTestServer served;
  served.engine.hold(true);
  auto open = std::async(std::launch::async, [&] { return served.post(long_request); });
  ASSERT_TRUE(eventually([&] { return served.engine.open() == 1; }));
  EXPECT_FALSE(served.api->drain(milliseconds(100)));
  const auto start = steady_clock::now();
  served.api->stop();
  EXPECT_LT(steady_clock::now() - start, std::chrono::seconds(2));
  EXPECT_EQ(error_of(open.get(), 503)["code"], "draining");
  EXPECT_EQ(served.engine.open(), 0u);
}

TEST(Lifecycle, StopEndsIdleKeepAliveConnectionsAtOnce) {
  ApiTestServer served;
  auto client = served.client();
  client.set_keep_alive(true);
  ASSERT_EQ(client.Get("/health")->status, 200);
  const auto start = steady_clock::now();
  served.api->stop();
  EXPECT_LT(steady_clock::now() - start, std::chrono::seconds(1));
  EXPECT_FALSE(client.Get("/health"));
}

TEST(Lifecycle, AConnectionThatWasTakenBeforeTheStopIsAnsweredNotReset) {
  std::atomic<int> answered{0}, refused{0};
  std::vector<std::string> lost;
  std::mutex mutex;
  for (int round = 0; round < 8; ++round) {
    ApiTestServer served;
    std::atomic<bool> stopped{false};
    std::vector<std::jthread> clients;
    for (int i = 0; i < 16; ++i)
      clients.emplace_back([&] {
        while (!stopped) {  // a connection for each request, so that there is always one that is not accepted yet
          auto client = served.client();
          client.set_connection_timeout(milliseconds(100));
          const auto reply = client.Get("/health");
          if (reply) {
            ++answered;
          } else if (reply.error() == httplib::Error::Connection ||
                     reply.error() == httplib::Error::ConnectionTimeout) {
            ++refused;
          } else {
            const std::lock_guard lock(mutex);
            lost.push_back(httplib::to_string(reply.error()));
          }
        }
      });
    const int before = answered;
    ASSERT_TRUE(eventually([&] { return answered > before + 64; }));
    served.api->stop();
    stopped = true;
  }
  EXPECT_THAT(lost, testing::IsEmpty()) << answered << " answered, " << refused << " refused";
}

TEST(Lifecycle, RequestsThatArriveBeforeTheStopGetWholeReplies) {
  ApiTestServer served;
  std::vector<std::unique_ptr<RawSocket>> sockets;
  for (int i = 0; i < 16; ++i) {
    sockets.push_back(std::make_unique<RawSocket>(served.api->bound_port()));
    sockets.back()->send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
    ASSERT_THAT(sockets.back()->read_until("}"), HasSubstr("200 OK"));
  }
  ASSERT_TRUE(served.api->drain(milliseconds(0)));
  for (const auto& socket : sockets) socket->send("GET /generate_text/a HTTP/1.1\r\nHost: x\r\n\r\n");
  served.api->stop();
  for (const auto& socket : sockets) {
    const std::string reply = socket->read();
    EXPECT_THAT(reply, HasSubstr("503 Service Unavailable"));
    EXPECT_TRUE(json::accept(reply.substr(reply.find("\r\n\r\n") + 4))) << "only a part of a reply: " << reply;
  }
}

TEST(Lifecycle, APortInUseIsAnErrorThatNamesIt) {
  ApiTestServer first;
  try {
    ApiTestServer second({}, [&](auto& options) { options.http.port = first.api->bound_port(); });
    FAIL() << "two servers share a port";
  } catch (const Error& error) {
    EXPECT_EQ(error.reason, Reason::PortInUse);
    EXPECT_THAT(error.what(), HasSubstr(std::to_string(first.api->bound_port())));
  }
}

}  // namespace
}  // namespace pm::test
