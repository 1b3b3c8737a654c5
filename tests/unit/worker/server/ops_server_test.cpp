#include "worker/server/ops_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "tests/unit/worker/server/exposition.h"
#include "tests/unit/worker/server/served.h"

namespace pm::test {
namespace {

struct Ops {
  explicit Ops(int api_port = 0) : board(ready_board()) {
    server::OpsOptions options;
    options.http.host = "127.0.0.1";
    options.http.port = 0;
    options.board = board;
    options.plan = two_rank_plan();
    options.incarnation = 3;
    options.ready = [this] { return ready.load(); };
    options.live = [this] { return live.load(); };
    options.rank0_metrics_port = api_port;
    server = std::make_unique<server::OpsServer>(std::move(options));
    server->start();
  }
  httplib::Result get(const std::string& path) const { return httplib::Client("127.0.0.1", server->bound_port()).Get(path); }
  std::atomic<bool> ready{true}, live{true};
  std::shared_ptr<comm::StatusBoard> board;
  std::unique_ptr<server::OpsServer> server;
};

TEST(OpsServer, ProbesFollowWhatTheyAreToldAndNothingElse) {
  Ops ops;
  for (const char* path : {"/live", "/ready", "/health"}) EXPECT_EQ(ops.get(path)->status, 200) << path;
  ops.ready = false;
  EXPECT_EQ(ops.get("/ready")->status, 503);
  EXPECT_EQ(ops.get("/health")->status, 503);
  EXPECT_EQ(ops.get("/live")->status, 200);
  ops.live = false;
  EXPECT_EQ(ops.get("/live")->status, 503);
  error_of(ops.get("/nothing"), 404);
}

TEST(OpsServer, StatusHasEveryRanksProgressAndBytes) {
  Ops ops;
  ops.board->rank(1).state = static_cast<uint32_t>(comm::RankState::Loading);
  ops.board->rank(1).load_bytes = 10;
  ops.board->rank(1).heartbeat_ns = 0;
  ops.ready = false;
  const auto status = json::parse(ops.get("/status")->body);
  EXPECT_EQ(status["state"], "Loading");
  EXPECT_EQ(status["ready"], false);
  EXPECT_EQ(status["incarnation"], 3);
  ASSERT_EQ(status["ranks"].size(), 2u);
  const auto& first = status["ranks"][0];
  EXPECT_EQ(first["state"], "Ready");
  EXPECT_EQ(first["steps"], 7);
  EXPECT_EQ(first["loadSeconds"], 1.5);
  EXPECT_EQ(first["predicted"]["weights"], 1 << 20);
  EXPECT_EQ(first["measured"]["weights"], 1 << 20);
  EXPECT_GE(first["heartbeatAgeSeconds"].get<double>(), 0);
  EXPECT_LT(first["heartbeatAgeSeconds"].get<double>(), 10);
  const auto& second = status["ranks"][1];
  EXPECT_EQ(second["loadBytes"], 10);
  EXPECT_EQ(second["loadTotal"], 1001);
  EXPECT_TRUE(second["heartbeatAgeSeconds"].is_null());
}

TEST(OpsServer, AFailedRanksReasonIsShownWhateverBytesItLeft) {
  Ops ops;
  ops.board->fail(1, "RankLost", std::string(510, 'x') + "\u4e16\u4e16", 5);   // cut inside a character
  const auto result = ops.get("/status");
  ASSERT_TRUE(result);
  const auto status = json::parse(result->body);
  EXPECT_EQ(status["state"], "Failed");
  EXPECT_EQ(status["ranks"][1]["state"], "Failed");
  EXPECT_EQ(status["ranks"][1]["reason"], "RankLost");
  EXPECT_THAT(status["ranks"][1]["message"].get<std::string>(), testing::StartsWith("xxxx"));
  ops.ready = false;
  EXPECT_EQ(json::parse(ops.get("/ready")->body)["failed"][0]["reason"], "RankLost");
}

TEST(OpsServer, StatusStaysSmallForEightRanks) {
  Ops ops;
  EXPECT_LT(ops.get("/status")->body.size() * 4, 64u << 10);
}

TEST(OpsServer, MetricsJoinTheApisWhereThereIsOne) {
  Served served;
  Ops ops(served.api->bound_port()), alone, dead(1);
  auto joined = parse_exposition(ops.get("/metrics")->body);
  EXPECT_TRUE(joined.contains("parallelmodel_num_requests_running"));
  EXPECT_TRUE(joined.contains("parallelmodel_rank_steps{rank=\"0\"}"));
  for (const Ops* without : {&alone, &dead}) {
    auto samples = parse_exposition(without->get("/metrics")->body);
    EXPECT_FALSE(samples.contains("parallelmodel_num_requests_running"));
    EXPECT_TRUE(samples.contains("parallelmodel_rank_steps{rank=\"0\"}"));
  }
}

TEST(OpsServer, MemoryIsServedBesideTheApi) {
  Ops ops;
  EXPECT_EQ(json::parse(ops.get("/memory")->body)["ranks"].size(), 2u);
  EXPECT_THAT(ops.get("/memory?format=text")->body, testing::HasSubstr("measured"));
}

}  // namespace
}  // namespace pm::test
