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
  metadata.stacks[0].recurrence = {.units = 5,
                                   .state = 1000,
                                   .channels = 40,
                                   .shared_state = 30,
                                   .shared_channels = 10,
                                   .layers = {{0, 3}, {4, 3}},
                                   .attending = {{3, 2, 4}}};
  for (const int first : {0, 4}) metadata.parts.push_back({"decoder", first, 3, Axis::Groups, 5, 6000, DType::F32});
  return metadata;
}

TEST(Recurrence, StatesFollowTheUnitsOfTheRankAndKeysTheLayersThatAttend) {
  const ModelMetadata metadata = hybrid();
  const Partition partition = make_partition(metadata, 2, DType::F32);
  EXPECT_EQ(state_bytes_per_sequence(metadata, partition, 0), 4 * 6 * (1000 * 3 + 30));
  EXPECT_EQ(state_bytes_per_sequence(metadata, partition, 1), 4 * 6 * (1000 * 2 + 30));
  EXPECT_EQ(kv_bytes_per_token(metadata, partition, 0, DType::F32), 2 * 2 * 6 * 64 * 4);
  ModelMetadata embeds = metadata;
  embeds.task = "embed";
  EXPECT_EQ(state_bytes_per_sequence(embeds, partition, 0), 0);
}

TEST(Recurrence, LayersThatNeitherAttendNorKeepAStateHoldNothing) {
  ModelMetadata metadata = hybrid();
  metadata.stacks[0].recurrence.layers = {{0, 3}};
  const Partition partition = make_partition(metadata, 1, DType::F32);
  EXPECT_EQ(state_bytes_per_sequence(metadata, partition, 0), 4 * 3 * (1000 * 5 + 30));
  EXPECT_EQ(cached_layers(metadata.stacks[0], 0), 2);
  const StackMetadata held = stage_metadata(metadata, {{"decoder", {3, 6}}}).stacks[0];
  EXPECT_EQ(recurrent_layers(held), 0);
  EXPECT_EQ(cached_layers(held, 0), 1) << "the layers 4 and 5 of the stage hold nothing";
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

TEST(Recurrence, EachTensorRankNeedsAUnit) {
  const Hardware hardware{
      .kind = DeviceKind::CPU, .devices = 6, .device_memory = int64_t{4} << 30, .memory_source = "spec"};
  const Decision decision = decide(hybrid(), hardware, {.tensor = 6});
  ASSERT_TRUE(decision.refusal);
  EXPECT_NE(
      decision.refusal->message.find("tensor=6, but the decoder has recurrent layers of 5 groups of heads and each "
                                     "rank needs at least one; use at most 5"),
      std::string::npos)
      << decision.refusal->message;
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
  const auto row = [&](int64_t units, int64_t state, const nlohmann::json& layers, const nlohmann::json& attending) {
    return with({units, state, 40, 30, 10, layers, attending});
  };
  const nlohmann::json layers = {{0, 3, 1}, {4, 3, 1}}, attending = nlohmann::json::array({{3, 2, 4}});
  EXPECT_EQ(row(5, 1000, layers, attending), "accepted");
  EXPECT_NE(with({5, 1000, 40}).find("[units, numbers of a state"), std::string::npos);
  EXPECT_NE(row(0, 1000, layers, attending).find("stacks[0].s.units"), std::string::npos);
  EXPECT_NE(row(5, int64_t{1} << 40, layers, attending).find("stacks[0].s.state"), std::string::npos);
  EXPECT_NE(row(5, 1000, nlohmann::json::array({{3, 2, 5}}), attending).find("layers of the stack"), std::string::npos);
  EXPECT_NE(row(5, 1000, layers, nlohmann::json::array({{0, 3, 1}})).find("at most the 8 layers"), std::string::npos);
}

}  // namespace
}  // namespace pm
