// SPDX-License-Identifier: Apache-2.0
// Latent attention: what tensor-parallel ranks do not divide, its metadata, its stages, and what a plan says of it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "contract/latent_tile.h"
#include "models.h"
#include "planner/memory.h"
#include "planner/partition.h"
#include "planner/plan.h"
#include "planner/stages.h"
#include "planner/weight_shards.h"

namespace pm {
namespace {

constexpr int64_t width = 48, projections = 5000;

/// A decoder of eight layers that cache latents of 48 numbers.
ModelMetadata latent() {
  ModelMetadata metadata = test::decoder({.layers = 8});
  metadata.stacks[0].latent = width;
  metadata.parts.push_back({"decoder", 0, 8, Axis::Latent, 1, projections, DType::F32});
  return metadata;
}

TEST(Latent, TheCacheIsTheSameOnEveryTensorRank) {
  const ModelMetadata metadata = latent();
  for (const int ranks : {1, 2, 4}) {
    const Partition partition = make_partition(metadata, ranks, DType::F32);
    for (int rank = 0; rank < ranks; ++rank)
      EXPECT_EQ(kv_bytes_per_token(metadata, partition, rank, DType::F32), 8 * width * 4) << ranks;
  }
  const Partition halves = make_partition(metadata, 2, DType::BF16);
  EXPECT_EQ(kv_bytes_per_token(metadata, halves, 1, DType::BF16), 8 * width * 2);
  EXPECT_EQ(kv_bytes_per_token(metadata, halves, 1, DType::I8), 8 * width * 4);
  ModelMetadata embeds = metadata;
  embeds.task = "embed";
  EXPECT_EQ(kv_bytes_per_token(embeds, halves, 0, DType::F32), 0);
}

TEST(Latent, ProjectionsAreWholeOnEveryTensorRankAndShardedWithTheirLayer) {
  const ModelMetadata metadata = latent(), without = test::decoder({.layers = 8});
  const int64_t bytes = 8 * projections * 4;
  for (const int ranks : {1, 2, 4}) {
    const Partition with = make_partition(metadata, ranks, DType::F32),
                    other = make_partition(without, ranks, DType::F32);
    for (int rank = 0; rank < ranks; ++rank)
      EXPECT_EQ(with.weight_bytes(metadata, rank) - other.weight_bytes(without, rank), bytes);
  }
  const WeightShards sharded = shard_weights(metadata, DType::F32), plain = shard_weights(without, DType::F32);
  EXPECT_EQ(sharded.whole, plain.whole);
  EXPECT_EQ(sharded.largest_flat_param() - plain.largest_flat_param(), projections * 4);
}

TEST(Latent, AStageCachesLatentsOfItsLayers) {
  const ModelMetadata held = stage_metadata(latent(), {{"decoder", {2, 5}}});
  const Partition partition = make_partition(held, 2, DType::F32);
  EXPECT_EQ(kv_bytes_per_token(held, partition, 0, DType::F32), 3 * width * 4);
}

TEST(Latent, AFewHeadsAtATimeBoundTheMemoryOfLongContexts) {
  EXPECT_EQ(heads_of_latent_tile(12, 64, 100), 12);
  EXPECT_EQ(heads_of_latent_tile(128, 192, 8192), 10);
  EXPECT_EQ(heads_of_latent_tile(128, 192, int64_t{1} << 30), 1);
  EXPECT_EQ(heads_of_latent_tile(1, 0, 0), 1);
  ModelMetadata deep = latent(), expanded = test::decoder({.layers = 8});
  for (ModelMetadata* one : {&deep, &expanded}) {
    one->stacks[0].positions = 1 << 20;
    for (Part& part : one->parts)
      if (part.axis == Axis::Positions) part.units = 1 << 20;
  }
  const auto bytes = [](const ModelMetadata& metadata) {
    return activation_bytes(metadata, make_partition(metadata, 1, DType::F32), 0, 1 << 20, 1);
  };
  EXPECT_LT(bytes(deep), bytes(expanded));
}

TEST(Latent, APlanSaysWhatTensorRanksDoNotDivide) {
  const auto said = [](int devices) {
    const Decision decision = decide(
        latent(),
        {.kind = DeviceKind::CPU, .devices = devices, .device_memory = int64_t{4} << 30, .memory_source = "spec"},
        {.strategy = Strategy::Tensor});
    return decision.plan ? decision.plan->message : decision.refusal->message;
  };
  EXPECT_NE(said(2).find("latent attention: the KV cache of 1.5 KiB a token and 156.2 KiB of weights are whole on each "
                         "tensor rank"),
            std::string::npos)
      << said(2);
  EXPECT_EQ(said(1).find("latent attention"), std::string::npos) << said(1);
}

TEST(Latent, SurvivesTheRoundTripAndIsRefusedByNameWhereItDoesNotFit) {
  const nlohmann::json whole = to_json(latent());
  EXPECT_EQ(metadata_from_json(nlohmann::json::parse(whole.dump())), latent());
  nlohmann::json changed = whole;
  changed["stacks"][0]["u"] = -1;
  try {
    metadata_from_json(changed);
    FAIL() << "accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("stacks[0].u"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace pm
