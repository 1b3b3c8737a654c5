// SPDX-License-Identifier: Apache-2.0
#include "worker/server/monitoring/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/server/support/api_test_server.h"
#include "tests/unit/worker/server/support/exposition.h"

namespace pm::test {
namespace {

TEST(Metrics, TheExpositionParsesAndMovesWithRequests) {
  ApiTestServer served;
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
  EXPECT_EQ(samples["parallelmodel_request_prefill_time_seconds_count"], 4) << "also where waiting tokens were merged";
  EXPECT_EQ(samples["parallelmodel_requests_finished_total{reason=\"length\"}"], 3);
  EXPECT_EQ(samples["parallelmodel_requests_finished_total{reason=\"stop\"}"], 1);
  EXPECT_EQ(samples["parallelmodel_requests_rejected_total{reason=\"invalid_value\"}"], 1);
  EXPECT_GE(samples["parallelmodel_generation_tokens_total"], 12);
  EXPECT_EQ(samples["parallelmodel_prompt_tokens_total"], 9);
  EXPECT_EQ(samples["parallelmodel_num_requests_waiting"], 0);
  EXPECT_EQ(samples["parallelmodel_kv_cache_usage_perc"], 0.25);
}

TEST(Metrics, VllmsNamesHaveTheSameValuesBesideOursOrAlone) {
  ApiTestServer served({}, [](server::ApiOptions& options) { options.names = {"a \"b\"", "c"}; });
  served.post({{"prompt", "abc"}, {"max_tokens", 5}});
  auto samples = parse_exposition(served.get("/metrics")->body);
  const std::string label = "model_name=\"a \\\"b\\\"\"";
  for (const char* name :
       {"num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "prompt_tokens_total",
        "generation_tokens_total", "time_to_first_token_seconds_sum", "e2e_request_latency_seconds_count"}) {
    ASSERT_TRUE(samples.contains(std::string("vllm:") + name + "{" + label + "}")) << name;
    EXPECT_EQ(samples[std::string("vllm:") + name + "{" + label + "}"], samples[std::string("parallelmodel_") + name])
        << name;
  }
  EXPECT_EQ(samples["vllm:request_success_total{" + label + ",finished_reason=\"length\"}"], 1);
  EXPECT_TRUE(samples.contains("vllm:request_success_total{" + label + ",finished_reason=\"abort\"}"));
  EXPECT_EQ(samples["vllm:time_to_first_token_seconds_bucket{" + label + ",le=\"300\"}"], 1);
  EXPECT_EQ(samples["vllm:cache_config_info{" + label + ",block_size=\"16\",num_gpu_blocks=\"8\"}"], 1);
  EXPECT_EQ(samples["parallelmodel_saturation"], 0.25) << "of the KV cache";

  const std::string text =
      "# HELP parallelmodel_num_requests_running x\n# TYPE parallelmodel_num_requests_running gauge\n"
      "parallelmodel_num_requests_running 2\n# TYPE other gauge\nother{a=\"b\"} 1\n";
  EXPECT_EQ(server::renamed_metrics(text, server::MetricNames::Own, "m"), text);
  EXPECT_EQ(server::renamed_metrics(text, server::MetricNames::Vllm, "m"),
            "# TYPE other gauge\nother{a=\"b\"} 1\n# HELP vllm:num_requests_running x\n"
            "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"m\"} 2\n");
}

TEST(Metrics, EveryRanksBytesArePredictedAndMeasuredByKind) {
  ApiTestServer served;
  auto samples = parse_exposition(served.get("/metrics")->body);
  EXPECT_EQ(samples["parallelmodel_rank_memory_bytes{rank=\"1\",kind=\"weights\",source=\"predicted\"}"], 2 << 20);
  EXPECT_EQ(samples["parallelmodel_rank_memory_bytes{rank=\"1\",kind=\"weights\",source=\"measured\"}"], 2 << 20);
  EXPECT_EQ(samples["parallelmodel_rank_memory_bytes{rank=\"0\",kind=\"runtime\",source=\"predicted\"}"], 16384);
  EXPECT_EQ(samples["parallelmodel_rank_load_bytes{rank=\"1\"}"], 1001);
  EXPECT_EQ(samples["parallelmodel_rank_load_seconds{rank=\"0\"}"], 1.5);
  EXPECT_EQ(samples["parallelmodel_rank_state{rank=\"0\",state=\"Ready\"}"], 1);
  EXPECT_EQ(samples["parallelmodel_plan_info{strategy=\"" + std::string(name_of(Strategy::Tensor)) +
                    "\",tensor=\"2\",pipeline=\"1\",data=\"1\",precision=\"F32\",reason=\"UserFixed\"}"],
            1);
}

TEST(Metrics, ThePrecisionOfTheKvCacheIsALabelOfThePlanWhereItIsOneOfItsOwn) {
  const auto status_table = ready_board();
  Plan plan = two_rank_plan();
  const auto text = [&] { return server::rank_metrics(plan, status_table.get(), std::chrono::steady_clock::now()); };
  EXPECT_THAT(text(), testing::Not(testing::HasSubstr("kv_precision")));
  plan.kv_precision = DType::I8;
  EXPECT_THAT(text(), testing::HasSubstr("reason=\"UserFixed\",kv_precision=\"I8\"} 1"));
}

TEST(Metrics, JoinedExpositionsHoldEachFamilyOnce) {
  const std::string own = "# HELP a one\n# TYPE a gauge\na 1\n",
                    other =
                        "# HELP b two\n# TYPE b gauge\nb 2\n# HELP a one\n# TYPE a gauge\na 9\n# TYPE c counter\nc 3";
  auto samples = parse_exposition(server::merge_metrics(own, other));
  EXPECT_EQ(samples, (std::map<std::string, double>{{"a", 1}, {"b", 2}, {"c", 3}}));
  EXPECT_EQ(server::merge_metrics(own, ""), own);
}

TEST(Memory, NumbersAreJsonAndTheTableIsForPeople) {
  ApiTestServer served;
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

TEST(Memory, ADeviceAndItsGraphsAreReportedByName) {
  ApiTestServer served;
  comm::RankStatus& rank = served.status_table->rank(1);
  rank.device.total = 80 << 20;
  rank.device.free = 50 << 20;
  rank.device.reserved = 20 << 20;
  rank.device.allocated = 15 << 20;
  rank.device.communicators = 5 << 20;
  rank.graphs.captured = 4;
  rank.graphs.replayed = 9;
  rank.graphs.bytes = 1000;
  const auto ranks = json::parse(served.get("/memory")->body)["ranks"];
  EXPECT_FALSE(ranks[0].contains("device"));
  EXPECT_FALSE(ranks[0].contains("graphs"));
  EXPECT_EQ(ranks[1]["device"], (json{{"total", 80 << 20},
                                      {"free", 50 << 20},
                                      {"reserved", 20 << 20},
                                      {"allocated", 15 << 20},
                                      {"communicator", 5 << 20}}));
  EXPECT_EQ(ranks[1]["graphs"], (json{{"captured", 4}, {"replayed", 9}, {"bytes", 1000}}));
  comm::report_capture_failure(served.status_table->rank(0), "no memory");
  comm::report_capture_failure(served.status_table->rank(0), "a later reason");
  EXPECT_EQ(json::parse(served.get("/memory")->body)["ranks"][0]["graphs"],
            (json{{"captured", 0}, {"replayed", 0}, {"bytes", 0}, {"captureFailure", "no memory"}}));
  EXPECT_THAT(served.get("/memory?format=text")->body,
              testing::HasSubstr("1     device: 80.0 MiB, 50.0 free; 20.0 reserved by this rank, of that 15.0 in "
                                 "tensors; 5.0 in communicators\n"));
  auto samples = parse_exposition(served.get("/metrics")->body);
  EXPECT_EQ(samples["parallelmodel_rank_device_memory_bytes{rank=\"1\",kind=\"communicator\"}"], 5 << 20);
  EXPECT_EQ(samples.count("parallelmodel_rank_device_memory_bytes{rank=\"0\",kind=\"total\"}"), 0u);
}

TEST(PlanRoute, ThePlanIsWhatThePlannerWrites) {
  ApiTestServer served;
  EXPECT_EQ(json::parse(served.get("/plan")->body), to_json(two_rank_plan()));
}

}  // namespace
}  // namespace pm::test
