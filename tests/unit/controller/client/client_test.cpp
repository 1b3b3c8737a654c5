// SPDX-License-Identifier: Apache-2.0
#include "controller/client/client.h"

#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <mutex>
#include <set>
#include <thread>

#include "test_server.h"

using namespace pm::k8s;
using namespace pm::k8s::test;
using namespace std::chrono_literals;

namespace {

/// A Client of a TLS server whose answers come from a function of (call number, request).
struct ClientTest : testing::Test {
  const Identity authority = make_authority("authority");
  RealClock clock;
  prometheus::Registry registry;
  std::mutex mutex;
  std::vector<Seen> seen;
  std::function<Answer(size_t, const Seen&)> answer = [](size_t, const Seen&) { return Answer{}; };
  TestServer server{[this](const Seen& request) {
                      std::lock_guard lock(mutex);
                      seen.push_back(request);
                      return answer(seen.size(), request);
                    },
                    issue(authority, "api", {"IP:127.0.0.1"})};
  ClusterConfig config = [this] {
    ClusterConfig made;
    made.host = "127.0.0.1";
    made.port = server.port();
    made.ca.data = authority.cert;
    made.token.data = "secret";
    return made;
  }();
  Client client{config, clock, registry};
};

std::string event(int version) {
  return R"({"type":"ADDED","object":{"metadata":{"resourceVersion":")" + std::to_string(version) + "\"}}}\n";
}
Request watch_request() { return {.verb = Verb::List, .resource = pods_resource, .query = {{"watch", "1"}}}; }

}  // namespace

TEST_F(ClientTest, SendsEachVerbAsTheServerExpectsIt) {
  const Json body = {{"a", "ü"}};
  client.send({Verb::Get, pods_resource, "n", "a"});
  client.send({Verb::Create, pods_resource, "n", "a", "", body});
  client.send({Verb::Apply, services_resource, "n", "a", "", body});
  client.send({Verb::MergePatch, services_resource, "n", "a", "status", body});
  client.send({Verb::Delete, pods_resource, "n", "a", "", {{"gracePeriodSeconds", 5}}});
  ASSERT_EQ(seen.size(), 5u);
  EXPECT_EQ(seen[0].method + " " + seen[0].target, "GET /api/v1/namespaces/n/pods/a");
  EXPECT_EQ(seen[0].headers["authorization"], "Bearer secret");
  EXPECT_EQ(seen[1].method + " " + seen[1].target,
            "POST /api/v1/namespaces/n/pods?fieldManager=parallelmodel-controller");
  EXPECT_EQ(seen[1].headers["content-type"], "application/json");
  EXPECT_EQ(seen[1].body, body.dump());
  EXPECT_EQ(seen[2].method, "PATCH");
  EXPECT_EQ(seen[2].headers["content-type"], "application/apply-patch+yaml");
  EXPECT_EQ(seen[3].headers["content-type"], "application/merge-patch+json");
  EXPECT_EQ(seen[4].method, "DELETE");
  EXPECT_EQ(seen[4].body, R"({"gracePeriodSeconds":5})");
}

TEST_F(ClientTest, ErrorsComeBackAsValues) {
  answer = [](size_t, const Seen&) {
    return Answer{.status = 409, .body = R"({"kind":"Status","reason":"AlreadyExists","message":"there"})"};
  };
  const Response response = client.send({Verb::Create, pods_resource, "n", "a", "", Json::object()});
  ASSERT_TRUE(failed(response));
  EXPECT_EQ(error_of(response).failure, Failure::AlreadyExists);
  EXPECT_EQ(seen.size(), 1u);
}

TEST_F(ClientTest, A503WithRetryAfterIsSentAgain) {
  answer = [](size_t call, const Seen&) {
    return call == 1 ? Answer{.status = 503, .headers = {{"Retry-After", "1"}}} : Answer{};
  };
  const auto begin = clock.now();
  EXPECT_FALSE(failed(client.send({Verb::Create, pods_resource, "n", "a", "", Json::object()})));
  EXPECT_GE(clock.now() - begin, 1s);
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_NE(
      prometheus::TextSerializer().Serialize(registry.Collect()).find("rest_client_request_retries_total{code=\"503\""),
      std::string::npos);
}

TEST_F(ClientTest, ItsOwnLimitHoldsBackAnyNumberOfThreads) {
  Client limited(config, clock, registry, {}, {.qps = 20, .burst = 2});
  const auto begin = clock.now();
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        for (int n = 0; n < 2; ++n) limited.send({Verb::Get, pods_resource, "n", "a"});
      });
  }
  EXPECT_EQ(seen.size(), 8u);
  EXPECT_GE(clock.now() - begin, 300ms);
  const std::string text = prometheus::TextSerializer().Serialize(registry.Collect());
  EXPECT_NE(text.find("rest_client_rate_limiter_duration_seconds_count{host=\"127.0.0.1:" +
                      std::to_string(server.port()) + "\",verb=\"GET\"} 8"),
            std::string::npos)
      << text;
}

TEST_F(ClientTest, AWriteThatWaitsIsNotSentWhenTheRightToWriteIsGoneByThen) {
  std::atomic<bool> leads{true};
  client.guard([&] { return leads.load(); });
  answer = [&](size_t, const Seen&) {
    leads = false;  // while the client waits for Retry-After
    return Answer{.status = 429, .headers = {{"Retry-After", "1"}}};
  };
  EXPECT_TRUE(failed(client.send({Verb::Create, pods_resource, "n", "a", "", Json::object()})));
  EXPECT_EQ(seen.size(), 1u);
  for (const Verb verb : {Verb::Create, Verb::Apply, Verb::MergePatch, Verb::Delete})
    EXPECT_TRUE(failed(client.send({verb, pods_resource, "n", "a", "", Json::object()})));
  EXPECT_EQ(seen.size(), 1u);
  answer = [](size_t, const Seen&) { return Answer{}; };
  EXPECT_FALSE(failed(client.send({Verb::Get, pods_resource, "n", "a"}))) << "reading is free";
}

TEST_F(ClientTest, A401ReadsTheTokenAgainAtOnce) {
  const std::string path = testing::TempDir() + "client-token-" + std::to_string(getpid());
  std::ofstream(path) << "old";
  config.token = {.file = path};
  Client rotating(config, clock, registry);
  rotating.send({Verb::Get, pods_resource, "n", "a"});
  std::ofstream(path) << "new";
  answer = [](size_t, const Seen& request) {
    return Answer{.status = request.headers.at("authorization") == "Bearer new" ? 200 : 401};
  };
  EXPECT_FALSE(failed(rotating.send({Verb::Get, pods_resource, "n", "a"})));
  EXPECT_EQ(seen.size(), 3u);
  unlink(path.c_str());
}

TEST_F(ClientTest, AnAnswerThatIsNotJsonIsAnError) {
  answer = [](size_t, const Seen&) { return Answer{.body = "<html>"}; };
  EXPECT_TRUE(failed(client.send({Verb::Create, pods_resource, "n", "a", "", Json::object()})));
}

TEST_F(ClientTest, ARefusedConnectionIsNoAnswer) {
  config.port = 1;
  Client lonely(config, clock, registry);
  const Response response = lonely.send({Verb::Get, pods_resource, "n", "a"});
  ASSERT_TRUE(failed(response));
  EXPECT_EQ(error_of(response).code, 0);
  EXPECT_NE(error_of(response).message.find("127.0.0.1:1"), std::string::npos) << error_of(response).message;
}

TEST_F(ClientTest, ConcurrentRequestsDoNotWaitForEachOther) {
  std::atomic<int> inside{0}, most{0};
  TestServer slow(
      [&](const Seen&) {
        most = std::max(most.load(), ++inside);
        for (int i = 0; i < 1000 && most < 2; ++i) std::this_thread::sleep_for(1ms);
        --inside;
        return Answer{};
      },
      issue(authority, "api", {"IP:127.0.0.1"}));
  config.port = slow.port();
  Client both(config, clock, registry);
  std::jthread other([&] { both.send({Verb::Get, pods_resource, "n", "a"}); });
  both.send({Verb::Get, pods_resource, "n", "b"});
  other.join();
  EXPECT_EQ(most, 2);
}

TEST_F(ClientTest, ManyThreadsGoOnOverTheSameConnections) {
  constexpr int threads = 6, rounds = 3;
  std::atomic<int> inside{0};
  std::set<int> ports;
  TestServer slow(
      [&](const Seen& request) {  // responds when all threads of a round have sent
        {
          const std::lock_guard lock(mutex);
          ports.insert(request.client_port);
        }
        const int round = inside++ / threads;
        while (inside < (round + 1) * threads) std::this_thread::sleep_for(1ms);
        return Answer{};
      },
      issue(authority, "api", {"IP:127.0.0.1"}));
  config.port = slow.port();
  Client many(config, clock, registry);
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::jthread> senders;
    for (int i = 0; i < threads; ++i) senders.emplace_back([&] { many.send({Verb::Get, pods_resource, "n", "a"}); });
  }
  EXPECT_EQ(ports.size(), static_cast<size_t>(threads)) << "a handshake for each request is most of its price";
}

TEST_F(ClientTest, AWatchDeliversEventsAsTheyComeAndEndsCleanly) {
  const std::string text = event(1) + event(2);
  answer = [&](size_t, const Seen&) {
    return Answer{.chunks = {text.substr(0, 30), text.substr(30, 50), text.substr(80)}};
  };
  std::vector<std::string> versions;
  const auto error = client.watch(watch_request(),
                                  [&](WatchEvent&& e) {
                                    versions.push_back(e.object["metadata"]["resourceVersion"]);
                                    return true;
                                  },
                                  {});
  EXPECT_FALSE(error) << error->message;
  EXPECT_EQ(versions, (std::vector<std::string>{"1", "2"}));
  EXPECT_EQ(seen[0].target, "/api/v1/pods?watch=1");
}

TEST_F(ClientTest, ErrorsInsideAWatchAndInsteadOfOneAreTold) {
  answer = [](size_t call, const Seen&) {
    if (call == 1)
      return Answer{.chunks = {event(1), R"({"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}})"
                                         "\n"}};
    if (call == 2) return Answer{.status = 410, .body = R"({"kind":"Status","code":410,"reason":"Expired"})"};
    if (call == 3) return Answer{.chunks = {event(1).substr(0, 20)}};
    return Answer{.chunks = {"<html>\n"}};
  };
  const auto all = [](WatchEvent&&) { return true; };
  EXPECT_EQ(client.watch(watch_request(), all, {})->failure, Failure::Gone);
  EXPECT_EQ(client.watch(watch_request(), all, {})->failure, Failure::Gone);
  EXPECT_NE(client.watch(watch_request(), all, {})->message.find("cut"), std::string::npos);
  EXPECT_NE(client.watch(watch_request(), all, {})->message.find("<html>"), std::string::npos);
}

TEST_F(ClientTest, AStopEndsAnIdleWatchAtOnce) {
  answer = [](size_t, const Seen&) { return Answer{.chunks = {event(1)}, .hold = true}; };
  std::stop_source stop;
  std::atomic<bool> started{false};
  std::jthread watcher([&] {
    EXPECT_FALSE(client.watch(
        watch_request(),
        [&](WatchEvent&&) {
          started = true;
          return true;
        },
        stop.get_token()));
  });
  while (!started) std::this_thread::sleep_for(1ms);
  const auto begin = clock.now();
  stop.request_stop();
  watcher.join();
  EXPECT_LT(clock.now() - begin, 2s);
}

TEST_F(ClientTest, ClosingConnectionsDoesNotWaitForTheServer) {
  std::atomic<int> inside{0};
  TestServer slow(
      [&](const Seen&) {  // responds once all four requests have arrived, so that four connections are open
        for (++inside; inside < 4;) std::this_thread::sleep_for(1ms);
        return Answer{};
      },
      issue(authority, "api", {"IP:127.0.0.1"}));
  config.port = slow.port();
  auto many = std::make_unique<Client>(config, clock, registry);
  std::vector<std::jthread> senders;
  for (int i = 0; i < 4; ++i) senders.emplace_back([&] { many->send({Verb::Get, pods_resource, "n", "a"}); });
  senders.clear();
  const auto begin = clock.now();
  many.reset();
  EXPECT_LT(clock.now() - begin, 300ms) << "the polite way costs at least 100 ms for each";
}

TEST_F(ClientTest, AnAbortEndsWhatIsInFlightAndRefusesTheRest) {
  answer = [](size_t, const Seen&) { return Answer{.hold = true}; };
  std::atomic<bool> ended{false};
  std::jthread sender([&] {
    EXPECT_TRUE(failed(client.send({Verb::Get, pods_resource, "n", "a"})));
    ended = true;
  });
  while (true) {
    std::lock_guard lock(mutex);
    if (!seen.empty()) break;
  }
  client.abort();
  sender.join();
  EXPECT_TRUE(failed(client.send({Verb::Get, pods_resource, "n", "a"})));
}

TEST_F(ClientTest, RequestsAreCountedUnderTheNamesOfClientGo) {
  client.send({Verb::Get, pods_resource, "n", "a"});
  const std::string text = prometheus::TextSerializer().Serialize(registry.Collect());
  const std::string host = "127.0.0.1:" + std::to_string(server.port());
  EXPECT_NE(text.find("rest_client_requests_total{code=\"200\",host=\"" + host + "\",method=\"GET\"} 1"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("rest_client_request_duration_seconds_count{host=\"" + host + "\",verb=\"GET\"} 1"),
            std::string::npos)
      << text;
}
