// SPDX-License-Identifier: Apache-2.0
// A KV cache of integers of eight bits: its bytes, to the last one, what a plan makes of them, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "models.h"
#include "planner/memory.h"
#include "planner/plan.h"
#include "planner/stages.h"

namespace pm {
namespace {

using testing::HasSubstr;
constexpr int64_t gibi = int64_t{1} << 30;

Hardware cpus(int devices, int64_t memory) { return {.devices = devices, .device_memory = memory}; }

Refusal refused(const Decision& decision) {
  EXPECT_TRUE(decision.refusal) << (decision.plan ? decision.plan->message : "");
  return decision.refusal.value_or(Refusal{});
}

/// A decoder of five layers with 3 kv heads of size 40, in 16 bits.
ModelMetadata grouped(DType dtype = DType::BF16) {
  return test::decoder({.layers = 5,
                        .hidden = 480,
                        .heads = 12,
                        .kv_heads = 3,
                        .head_dim = 40,
                        .ffn = 512,
                        .vocab = 1024,
                        .positions = 4096,
                        .dtype = dtype});
}

TEST(KvPrecision, ATokenTakesAByteForEachNumberAndFourForEachScale) {
  const ModelMetadata metadata = grouped();
  const auto bytes = [&](int ranks, int rank, DType precision, std::optional<DType> kv) {
    return kv_bytes_per_token(metadata, make_partition(metadata, ranks, precision), rank, precision, kv);
  };
  EXPECT_EQ(bytes(1, 0, DType::BF16, {}), 2 * 5 * 3 * 40 * 2);
  EXPECT_EQ(bytes(1, 0, DType::BF16, DType::I8), 2 * 5 * 3 * (40 + 4));
  EXPECT_EQ(bytes(1, 0, DType::F32, DType::I8), 2 * 5 * 3 * (40 + 4)) << "whatever the weights are";
  EXPECT_EQ(bytes(1, 0, DType::I8, DType::I8), 2 * 5 * 3 * (40 + 4));
  for (const int rank : {0, 1}) {
    const int64_t heads = make_partition(metadata, 2, DType::BF16).range("decoder", Axis::Kv, 3, rank).size();
    EXPECT_EQ(bytes(2, rank, DType::BF16, DType::I8), 2 * 5 * heads * (40 + 4)) << rank;
  }
  EXPECT_EQ(bytes(2, 0, DType::BF16, DType::I8) + bytes(2, 1, DType::BF16, DType::I8), 2 * 5 * 3 * (40 + 4));
  const ModelMetadata stage = stage_metadata(metadata, {{"decoder", {1, 3}}});
  EXPECT_EQ(kv_bytes_per_token(stage, make_partition(stage, 1, DType::BF16), 0, DType::BF16, DType::I8),
            2 * 2 * 3 * (40 + 4));
}

TEST(KvPrecision, LayoutsOfOtherHeadsHaveScalesOfTheirOwn) {
  ModelMetadata metadata = grouped();
  metadata.stacks[0].layouts = {{.heads = 12, .kv_heads = 1, .head_dim = 96, .layers = {{4, 1, 1}}}};
  EXPECT_EQ(kv_bytes_per_token(metadata, make_partition(metadata, 1, DType::BF16), 0, DType::BF16, DType::I8),
            2 * (4 * 3 * (40 + 4) + 1 * 1 * (96 + 4)));
}

TEST(KvPrecision, ThePlanHasTheBytesOfEachRankAndAsManyMoreBlocks) {
  const ModelMetadata metadata = test::gpt_neo_2_7b();  // 32 layers, 20 kv heads of size 128, F16
  for (const int ranks : {1, 2}) {
    const auto plan_of = [&](std::optional<DType> kv) {
      const PlanConstraints constraints{.tensor = ranks, .kv_precision = kv, .max_concurrency = 4096};
      return *decide(metadata, cpus(ranks, 12 * gibi), constraints).plan;
    };
    const Plan halves = plan_of({}), codes = plan_of(DType::I8);
    EXPECT_EQ(halves.kv_precision, std::nullopt);
    EXPECT_EQ(codes.kv_precision, DType::I8);
    EXPECT_EQ(codes.precision, DType::F16);
    for (const RankPlan& rank : codes.ranks) {
      EXPECT_EQ(rank.predicted.kv, codes.kv_blocks * 16 * 2 * 32 * (20 / ranks) * (128 + 4));
      EXPECT_LE(rank.predicted.total(), 12 * gibi);
    }
    const double more = static_cast<double>(codes.kv_blocks) / static_cast<double>(halves.kv_blocks);
    EXPECT_GT(more, 0.97 * 256 / 132) << ranks << " ranks";
    EXPECT_LT(more, 1.03 * 256 / 132) << ranks << " ranks";
    EXPECT_LT(codes.estimate.token_seconds, halves.estimate.token_seconds) << "fewer bytes are read for each token";
  }
}

TEST(KvPrecision, EveryStrategyPlansIt) {
  const ModelMetadata metadata = grouped();
  for (const Strategy strategy :
       {Strategy::Tensor, Strategy::Pipeline, Strategy::Data, Strategy::Sharded, Strategy::Offload}) {
    const PlanConstraints constraints{.strategy = strategy, .kv_precision = DType::I8};
    const Decision decision = decide(metadata, cpus(2, 2 * gibi), constraints);
    ASSERT_TRUE(decision.plan) << decision.refusal->message;
    int64_t sum = 0;
    for (const RankPlan& rank : decision.plan->ranks) sum += rank.predicted.kv;
    const int64_t copies = strategy == Strategy::Tensor || strategy == Strategy::Pipeline ? 1 : 2;
    EXPECT_EQ(sum, copies * decision.plan->kv_blocks * 16 * 2 * 5 * 3 * (40 + 4)) << name_of(strategy);
  }
}

TEST(KvPrecision, CrossAttentionIsCachedLikewise) {
  const ModelMetadata metadata = test::encoder_decoder(2, 3);  // 8 heads of 64
  EXPECT_EQ(kv_bytes_per_token(metadata, make_partition(metadata, 1, DType::F32), 0, DType::F32, DType::I8),
            2 * 3 * 8 * (64 + 4));
  EXPECT_TRUE(decide(metadata, cpus(1, 2 * gibi), {.kv_precision = DType::I8}).plan);
}

TEST(KvPrecision, IsRefusedByNameWhereAModelOrADeviceCannotHaveIt) {
  const auto message = [](const ModelMetadata& metadata, const Hardware& hardware, DType kv = DType::I8) {
    const Refusal refusal = refused(decide(metadata, hardware, {.kv_precision = kv}));
    EXPECT_EQ(refusal.reason, Reason::UnsupportedPrecision);
    return refusal.message;
  };
  ModelMetadata latent = grouped();
  latent.stacks[0].latent = 48;
  EXPECT_THAT(message(latent, cpus(1, 2 * gibi)), HasSubstr("a KV cache in I8 is not served for latent attention"));
  ModelMetadata embeds = grouped();
  embeds.task = "embed";
  EXPECT_THAT(message(embeds, cpus(1, 2 * gibi)), HasSubstr("which caches no keys and values"));
  ModelMetadata recurrent = grouped();
  recurrent.stacks[0].recurrence = {.units = 4, .state = 64, .channels = 32, .layers = {{0, 5, 1}}};
  recurrent.parts.push_back({"decoder", 0, 5, Axis::Groups, 4, 600, DType::BF16});
  EXPECT_THAT(message(recurrent, cpus(1, 2 * gibi)), HasSubstr("which caches no keys and values"));
  recurrent.stacks[0].recurrence.layers = {{0, 4, 1}};
  recurrent.stacks[0].recurrence.attending = {{4, 1, 1}};
  EXPECT_TRUE(decide(recurrent, cpus(1, 2 * gibi), {.kv_precision = DType::I8}).plan) << "states stay F32";
  Hardware gpu = cpus(1, 2 * gibi);
  gpu.kind = DeviceKind::GPU;
  EXPECT_THAT(message(grouped(), gpu), HasSubstr("a KV cache in I8 is served on CPUs only"));
  EXPECT_THAT(message(grouped(), cpus(1, 2 * gibi), DType::F16), HasSubstr("a KV cache in F16 is not served"));
}

TEST(KvPrecision, APlanFileNamesItAndOthersAreRefused) {
  const Plan plan = *decide(grouped(), cpus(1, 2 * gibi), {.kv_precision = DType::I8}).plan;
  nlohmann::json written = to_json(plan);
  EXPECT_EQ(written["kvPrecision"], "I8");
  EXPECT_EQ(plan_from_json(written).kv_precision, DType::I8);
  EXPECT_THAT(describe(plan), HasSubstr("KV blocks of 16 tokens in I8"));
  for (const char* other : {"F32", "I4", "fp8"}) {
    written["kvPrecision"] = other;
    EXPECT_THROW(plan_from_json(written), std::invalid_argument) << other;
  }
  const Plan without = *decide(grouped(), cpus(1, 2 * gibi), {}).plan;
  EXPECT_FALSE(to_json(without).contains("kvPrecision")) << "plans that do not need it stay as they were";
  EXPECT_EQ(plan_from_json(to_json(without)).kv_precision, std::nullopt);
}

}  // namespace
}  // namespace pm
