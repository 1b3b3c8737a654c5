// SPDX-License-Identifier: Apache-2.0
// Layers that keep a state of each sequence in place of keys and values: their bytes, their metadata, their stages.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "models.h"
#include "planner/memory.h"
#include "planner/partition.h"
#include "planner/plan.h"
#include "planner/stages.h"

namespace pm {
namespace {

/// A decoder of eight layers, of which 3 and 7 attend and the others are recurrent, with five units.
ModelMetadata hybrid() {
  ModelMetadata metadata = test::decoder({.layers = 8});
  metadata.stacks[0].recurrence = {5, 1000, 40, {{3, 2, 4}}};
  for (const int first : {0, 4}) metadata.parts.push_back({"decoder", first, 3, Axis::Groups, 5, 6000, DType::F32});
  return metadata;
}

TEST(Recurrence, StatesFollowTheUnitsOfTheRankAndKeysTheLayersThatAttend) {
  const ModelMetadata metadata = hybrid();
  const Partition partition = make_partition(metadata, 2, DType::F32);
  EXPECT_EQ(state_bytes_per_sequence(metadata, partition, 0), 4 * 6 * 1000 * 3);
  EXPECT_EQ(state_bytes_per_sequence(metadata, partition, 1), 4 * 6 * 1000 * 2);
  EXPECT_EQ(kv_bytes_per_token(metadata, partition, 0, DType::F32), 2 * 2 * 6 * 64 * 4);
  ModelMetadata embeds = metadata;
  embeds.task = "embed";
  EXPECT_EQ(state_bytes_per_sequence(embeds, partition, 0), 0);
}

TEST(Recurrence, APlanHasMemoryForTheStatesOfAllItsSequences) {
  const ModelMetadata metadata = hybrid();
  const Decision decision = decide(
      metadata, {.kind = DeviceKind::CPU, .devices = 2, .device_memory = int64_t{4} << 30, .memory_source = "spec"},
      {.strategy = Strategy::Tensor, .max_concurrency = 7});
  ASSERT_TRUE(decision.plan) << (decision.refusal ? decision.refusal->message : "");
  const Plan& plan = *decision.plan;
  const Partition partition = make_partition(metadata, 2, plan.precision);
  EXPECT_EQ(plan.concurrency, 7);
  for (const RankPlan& rank : plan.ranks)
    EXPECT_EQ(rank.predicted.kv,
              plan.kv_blocks * block_tokens * kv_bytes_per_token(metadata, partition, rank.rank, plan.precision) +
                  7 * state_bytes_per_sequence(metadata, partition, rank.rank));
}

TEST(Recurrence, StagesHaveTheLayersOfEachKindThatTheyHold) {
  const ModelMetadata metadata = hybrid();
  const auto held = [&](int64_t begin, int64_t end) {
    return stage_metadata(metadata, {{"decoder", {begin, end}}}).stacks[0];
  };
  EXPECT_EQ(recurrent_layers(held(0, 3)), 3);
  EXPECT_EQ(cached_layers(held(0, 3), 0), 0);
  EXPECT_EQ(recurrent_layers(held(2, 8)), 4);
  EXPECT_EQ(cached_layers(held(2, 8), 0), 2);
  EXPECT_EQ(held(3, 4).recurrence, Recurrence{});
}

TEST(Recurrence, SurvivesTheRoundTripAndIsRefusedByNameWhereItDoesNotFit) {
  const ModelMetadata metadata = hybrid();
  const nlohmann::json whole = to_json(metadata);
  EXPECT_EQ(metadata_from_json(nlohmann::json::parse(whole.dump())), metadata);
  const auto with = [&](const nlohmann::json& value) {
    nlohmann::json changed = whole;
    changed["stacks"][0]["s"] = value;
    try {
      metadata_from_json(changed);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_NE(with({5, 1000, 40}).find("[units, numbers of a state"), std::string::npos);
  EXPECT_NE(with({0, 1000, 40, {{3, 2, 4}}}).find("stacks[0].s.units"), std::string::npos);
  EXPECT_NE(with({5, int64_t{1} << 40, 40, {{3, 2, 4}}}).find("stacks[0].s.state"), std::string::npos);
  EXPECT_NE(with({5, 1000, 40, {{3, 2, 5}}}).find("layers of the stack"), std::string::npos);
  EXPECT_NE(with({5, 1000, 40, {{0, 8, 1}}}).find("fewer layers that attend"), std::string::npos);
}

}  // namespace
}  // namespace pm
