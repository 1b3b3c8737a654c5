// SPDX-License-Identifier: Apache-2.0
// Tests plans as JSON and as text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "models.h"
#include "planner/plan.h"

namespace pm {
namespace {

using testing::HasSubstr;

Plan sample() {
  const Hardware hardware{.devices = 3, .device_memory = int64_t{8} << 30, .memory_source = "spec"};
  return *decide(test::gpt_neo_2_7b(), hardware, {}).plan;
}

std::string refusal(const nlohmann::json& value) {
  try {
    plan_from_json(value);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(PlanJson, SurvivesTheRoundTrip) {
  const nlohmann::json once = to_json(sample());
  const Plan read = plan_from_json(nlohmann::json::parse(once.dump()));
  EXPECT_EQ(to_json(read), once);
  EXPECT_EQ(read.ranks[2].predicted.total(), sample().ranks[2].predicted.total());
  EXPECT_EQ(read.ranks[1].rows[0].ranges, sample().ranks[1].rows[0].ranges);
}

TEST(PlanJson, KeepsStagesInTheirOrderWithTheFiguresAndEstimates) {
  Plan plan =
      *decide(test::encoder_decoder(2, 2), {.devices = 4, .device_memory = int64_t{8} << 30}, {.pipeline = 4}).plan;
  plan.hardware_values = {{"link bandwidth", "bytes/s", {1.25e10, "node label"}}};
  plan.estimate = {123, 0.0625, 1e4 / 3};
  plan.objective = Objective::Throughput;
  const Plan read = plan_from_json(nlohmann::json::parse(to_json(plan).dump()));
  EXPECT_EQ(to_json(read), to_json(plan));
  for (size_t rank = 0; rank < 4; ++rank) EXPECT_EQ(read.ranks[rank].layers, plan.ranks[rank].layers);
  EXPECT_EQ(read.ranks[3].layers[0].first, "encoder");
  EXPECT_EQ(read.micro_batches, plan.micro_batches);
  EXPECT_EQ(read.estimate, plan.estimate);
  EXPECT_EQ(read.hardware_values[0].value, plan.hardware_values[0].value);
}

TEST(PlanJson, WithoutStagesIsReadForReplicasThatStillRunByIt) {
  nlohmann::json old = to_json(sample());
  for (const char* key : {"microBatches", "objective", "estimate", "hardware"}) old.erase(key);
  for (nlohmann::json& rank : old["ranks"]) rank["layers"] = {{"decoder", {0, 32}}};
  for (nlohmann::json& one : old["rejected"]) one.erase("estimate");
  const Plan read = plan_from_json(old);
  EXPECT_EQ(read.ranks[2].layers, sample().ranks[2].layers);
  EXPECT_EQ(read.objective, Objective::Latency);
}

TEST(PlanJson, EditedBadlyIsRefusedByName) {
  const auto with = [](const char* pointer, const nlohmann::json& value) {
    nlohmann::json bad = to_json(sample());
    bad[nlohmann::json::json_pointer(pointer)] = value;
    return refusal(bad);
  };
  EXPECT_THAT(refusal(nlohmann::json::object()), HasSubstr("plan.strategy is missing"));
  EXPECT_THAT(with("/strategy", "Magic"), HasSubstr("Magic"));
  EXPECT_THAT(with("/sizes/tensor", 2), HasSubstr("plan.ranks: found 3 ranks, expected 2"));
  EXPECT_THAT(with("/precision", "F12"), HasSubstr("F12"));
  EXPECT_THAT(with("/ranks/1/rows/0/range", nlohmann::json({5, 99})), HasSubstr("plan.ranks[1].rows[0].range"));
  EXPECT_THAT(with("/ranks/1/dpRank", 1), HasSubstr("plan.ranks[1]: found rank 1 in dp_rank 1, stage 0, tensor 1, "
                                                    "expected rank 1 in dp_rank 0, stage 0, tensor 1"));
  EXPECT_THAT(with("/ranks/1/layers/0/range", nlohmann::json({0, 5})),
              HasSubstr("plan.ranks[1].layers: found other layers, expected those of rank 0"));
  EXPECT_THAT(with("/objective", "Speed"), HasSubstr("Speed"));
  EXPECT_THAT(with("/microBatches", 0), HasSubstr("plan.microBatches: found 0"));
  EXPECT_THAT(with("/estimate/tokenSeconds", -1.5), HasSubstr("plan.estimate.tokenSeconds: found -1.5"));
  EXPECT_THAT(with("/ranks/1/predicted/weights", -5), HasSubstr("plan.ranks[1].predicted.weights: found -5"));
}

TEST(PlanJson, StrategiesHaveTheNamesOfTheApi) {
  for (Strategy strategy :
       {Strategy::Tensor, Strategy::Pipeline, Strategy::Data, Strategy::Sharded, Strategy::Offload}) {
    EXPECT_EQ(strategy_of(name_of(strategy)), strategy);
  }
  EXPECT_FALSE(strategy_of("tensor"));
}

TEST(Describe, ShowsEachRankWithItsShareItsBytesAndWhatWasRejected) {
  const std::string text = describe(sample());
  for (const char* part :
       {"Tensor over 3 ranks (tensor 3 x pipeline 1 x data 1), F16", "LowestLatency", "stage 0", "| rank 2",
        "decoder layers 0-31", "| heads 14-19 of 20", "memory bandwidth 1e+10 bytes/s (assumed)", "decoder heads/20",
        "0..7 (7)", "14..20 (6)", "vocab/50257", "weights", "of 8.0 GiB", "[wwww", "not Pipeline x 3"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(Describe, DrawsDpRanksStagesAndTensorRanksWithTheirLayersAndHeads) {
  const Plan plan = *decide(test::encoder_decoder(4, 3, 512, 8, 64), {.devices = 8, .device_memory = int64_t{8} << 30},
                            {.tensor = 2, .pipeline = 2, .data = 2})
                         .plan;
  const std::string text = describe(plan);
  EXPECT_THAT(text, HasSubstr("Tensor over 8 ranks (tensor 2 x pipeline 2 x data 2)"));
  for (const char* part :
       {"dp_rank 0\n  stage 0", "| rank 0", "| rank 1", "  stage 1", "| rank 3", "encoder layers 0-3", "decoder layers",
        "| heads 4-7 of 8", "dp_rank 1: ranks 4-7, as dp_rank 0\n", "2 groups of sequences in flight"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

}  // namespace
}  // namespace pm
