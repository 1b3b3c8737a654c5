#include "worker/server/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/server/exposition.h"
#include "tests/unit/worker/server/served.h"

namespace pm::test {
namespace {

TEST(Metrics, TheExpositionParsesAndMovesWithRequests) {
  Served served;
  EXPECT_EQ(parse_exposition(served.get("/metrics")->body)["parallelmodel_time_to_first_token_seconds_count"], 0);
  served.post({{"prompt", "abc"}, {"max_tokens", 5}});
  served.post({{"prompt", {"a", "b"}}, {"max_tokens", 2}, {"stream", true}});
  served.post({{"prompt", "abcd"}, {"max_tokens", 9}, {"stop", "c"}});
  served.post({{"prompt", 5}});
  const auto result = served.get("/metrics");
  EXPECT_EQ(result->get_header_value("Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
  auto samples = parse_exposition(result->body);
  EXPECT_EQ(samples["parallelmodel_time_to_first_token_seconds_count"], 4);
  EXPECT_EQ(samples["parallelmodel_inter_token_latency_seconds_count"], 4 + 1 + 1 + 2);
  EXPECT_EQ(samples["parallelmodel_e2e_request_latency_seconds_count"], 4);
  EXPECT_EQ(samples["parallelmodel_request_queue_time_seconds_count"], 4);
  EXPECT_EQ(samples["parallelmodel_requests_finished_total{reason=\"length\"}"], 3);
  EXPECT_EQ(samples["parallelmodel_requests_finished_total{reason=\"stop\"}"], 1);
  EXPECT_EQ(samples["parallelmodel_requests_rejected_total{reason=\"invalid_value\"}"], 1);
  EXPECT_GE(samples["parallelmodel_generation_tokens_total"], 12);
  EXPECT_EQ(samples["parallelmodel_prompt_tokens_total"], 9);
  EXPECT_EQ(samples["parallelmodel_num_requests_waiting"], 0);
  EXPECT_EQ(samples["parallelmodel_kv_cache_usage_perc"], 0.25);
}

TEST(Metrics, EveryRanksBytesArePredictedAndMeasuredByKind) {
  Served served;
  auto samples = parse_exposition(served.get("/metrics")->body);
  EXPECT_EQ(samples["parallelmodel_rank_memory_bytes{rank=\"1\",kind=\"weights\",source=\"predicted\"}"], 2 << 20);
  EXPECT_EQ(samples["parallelmodel_rank_memory_bytes{rank=\"1\",kind=\"weights\",source=\"measured\"}"], 2 << 20);
  EXPECT_EQ(samples["parallelmodel_rank_memory_bytes{rank=\"0\",kind=\"runtime\",source=\"predicted\"}"], 16384);
  EXPECT_EQ(samples["parallelmodel_rank_load_bytes{rank=\"1\"}"], 1001);
  EXPECT_EQ(samples["parallelmodel_rank_load_seconds{rank=\"0\"}"], 1.5);
  EXPECT_EQ(samples["parallelmodel_rank_state{rank=\"0\",state=\"Ready\"}"], 1);
  EXPECT_EQ(samples["parallelmodel_plan_info{strategy=\"" + std::string(name_of(Strategy::Tensor)) +
                    "\",tensor=\"2\",pipeline=\"1\",data=\"1\",precision=\"F32\",reason=\"UserFixed\"}"], 1);
}

TEST(Metrics, JoinedExpositionsHoldEachFamilyOnce) {
  const std::string own = "# HELP a one\n# TYPE a gauge\na 1\n", other = "# HELP b two\n# TYPE b gauge\nb 2\n# HELP a one\n# TYPE a gauge\na 9\n# TYPE c counter\nc 3";
  auto samples = parse_exposition(server::merge_metrics(own, other));
  EXPECT_EQ(samples, (std::map<std::string, double>{{"a", 1}, {"b", 2}, {"c", 3}}));
  EXPECT_EQ(server::merge_metrics(own, ""), own);
}

TEST(Memory, NumbersAreJsonAndTheTableIsForPeople) {
  Served served;
  const auto report = json::parse(served.get("/memory")->body);
  ASSERT_EQ(report["ranks"].size(), 2u);
  EXPECT_EQ(report["ranks"][1]["predicted"]["weights"], 2 << 20);
  EXPECT_EQ(report["ranks"][1]["measured"]["kv"], 2048);
  EXPECT_EQ(report["ranks"][0]["predicted"]["total"], (1 << 20) + 2048 + 4096 + 8192 + 16384);
  const auto table = served.get("/memory?format=text");
  EXPECT_THAT(table->get_header_value("Content-Type"), testing::StartsWith("text/plain"));
  EXPECT_THAT(table->body, testing::ContainsRegex("1 +predicted +2.000 +0.002"));
  EXPECT_THAT(table->body, testing::ContainsRegex("1 +measured +2.000"));
  EXPECT_EQ(served.client().Get("/memory", {{"Accept", "text/plain"}})->body, table->body);
  error_of(served.get("/memory?format=xml"), 400);
}

TEST(PlanRoute, ThePlanIsWhatThePlannerWrites) {
  Served served;
  EXPECT_EQ(json::parse(served.get("/plan")->body), to_json(two_rank_plan()));
}

}  // namespace
}  // namespace pm::test
