// SPDX-License-Identifier: Apache-2.0
#include "worker/server/monitoring/admin_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "tests/unit/worker/server/support/api_test_server.h"
#include "tests/unit/worker/server/support/exposition.h"

namespace pm::test {
namespace {

struct AdminTestServer {
  explicit AdminTestServer(int api_port = 0) : status_table(ready_board()) {
    server::AdminOptions options;
    options.http.host = "127.0.0.1";
    options.http.port = 0;
    options.status_table = status_table;
    options.plan = two_rank_plan();
    options.plan.kv_precision = DType::I8;
    options.replica_generation = 3;
    options.cpu_kernels = "avx2";
    options.speculation = "ngram";
    options.ready = [this] { return ready.load(); };
    options.live = [this] { return live.load(); };
    options.rank0_metrics_port = api_port;
    server = std::make_unique<server::AdminServer>(std::move(options));
    server->start();
  }
  httplib::Result get(const std::string& path) const {
    return httplib::Client("127.0.0.1", server->bound_port()).Get(path);
  }
  std::atomic<bool> ready{true}, live{true};
  std::shared_ptr<comm::StatusTable> status_table;
  std::unique_ptr<server::AdminServer> server;
};

TEST(AdminServer, ProbesReportLivenessAndReadiness) {
  AdminTestServer admin;
  for (const char* path : {"/live", "/ready", "/health"}) EXPECT_EQ(admin.get(path)->status, 200) << path;
  admin.ready = false;
  EXPECT_EQ(admin.get("/ready")->status, 503);
  EXPECT_EQ(admin.get("/health")->status, 503);
  EXPECT_EQ(admin.get("/live")->status, 200);
  admin.live = false;
  EXPECT_EQ(admin.get("/live")->status, 503);
  error_of(admin.get("/nothing"), 404);
}

TEST(AdminServer, StatusHasEveryRanksProgressAndBytes) {
  AdminTestServer admin;
  admin.status_table->rank(1).state = static_cast<uint32_t>(comm::RankState::Loading);
  admin.status_table->rank(1).load_bytes = 10;
  admin.status_table->rank(1).heartbeat_ns = 0;
  admin.ready = false;
  const auto status = json::parse(admin.get("/status")->body);
  EXPECT_EQ(status["state"], "Loading");
  EXPECT_EQ(status["ready"], false);
  EXPECT_EQ(status["replicaGeneration"], 3);
  EXPECT_EQ(status["cpuKernels"], "avx2");
  EXPECT_EQ(status["speculation"], "ngram");
  EXPECT_EQ(status["kvPrecision"], "I8");
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

TEST(AdminServer, AFailedRanksReasonIsShownWhateverBytesItLeft) {
  AdminTestServer admin;
  admin.status_table->fail(1, Reason::RankLost, std::string(510, 'x') + "\u4e16\u4e16",
                           5);  // truncated inside a UTF-8 character
  const auto result = admin.get("/status");
  ASSERT_TRUE(result);
  const auto status = json::parse(result->body);
  EXPECT_EQ(status["state"], "Failed");
  EXPECT_EQ(status["ranks"][1]["state"], "Failed");
  EXPECT_EQ(status["ranks"][1]["reason"], "RankLost");
  EXPECT_THAT(status["ranks"][1]["message"].get<std::string>(), testing::StartsWith("xxxx"));
  admin.ready = false;
  EXPECT_EQ(json::parse(admin.get("/ready")->body)["failed"][0]["reason"], "RankLost");
}

TEST(AdminServer, StatusStaysSmallForEightRanks) {
  AdminTestServer admin;
  EXPECT_LT(admin.get("/status")->body.size() * 4, 64u << 10);
}

TEST(AdminServer, MetricsJoinTheApisWhereThereIsOne) {
  ApiTestServer served;
  AdminTestServer admin(served.api->bound_port()), alone, dead(1);
  auto joined = parse_exposition(admin.get("/metrics")->body);
  EXPECT_TRUE(joined.contains("parallelmodel_num_requests_running"));
  EXPECT_TRUE(joined.contains("parallelmodel_rank_steps{rank=\"0\"}"));
  for (const AdminTestServer* without : {&alone, &dead}) {
    auto samples = parse_exposition(without->get("/metrics")->body);
    EXPECT_FALSE(samples.contains("parallelmodel_num_requests_running"));
    EXPECT_TRUE(samples.contains("parallelmodel_rank_steps{rank=\"0\"}"));
  }
}

TEST(AdminServer, MemoryIsServedBesideTheApi) {
  AdminTestServer admin;
  EXPECT_EQ(json::parse(admin.get("/memory")->body)["ranks"].size(), 2u);
  EXPECT_THAT(admin.get("/memory?format=text")->body, testing::HasSubstr("measured"));
}

}  // namespace
}  // namespace pm::test
