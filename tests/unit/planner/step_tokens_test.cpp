// SPDX-License-Identifier: Apache-2.0
// Tests the token budget of a step and the activations of steps on GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "contract/widened_tile.h"
#include "planner/memory.h"
#include "planner/strategies/layout.h"
#include "situations.h"

namespace pm::test {
namespace {

using testing::HasSubstr;

Plan planned(const ModelMetadata& metadata, const Hardware& hardware, const PlanConstraints& constraints = {}) {
  const Decision decision = decide(metadata, hardware, constraints);
  EXPECT_TRUE(decision.plan) << (decision.refusal ? decision.refusal->message : "");
  return decision.plan.value_or(Plan{});
}

Hardware gpu(int64_t memory, int devices = 1) {
  return {.kind = DeviceKind::GPU, .devices = devices, .device_memory = memory};
}

TEST(StepTokens, AGpuWithRoomPrefillsIn2048TokensAndItsActivationsAreTheirs) {
  const ModelMetadata metadata = llama_7b();
  const Plan plan = planned(metadata, gpus(2, "NVIDIA-A100-SXM4-80GB"), {.tensor = 2});
  EXPECT_EQ(plan.step_tokens, 2048);
  const Partition partition = make_partition(metadata, 2, DType::BF16);
  for (const RankPlan& rank : plan.ranks)
    EXPECT_EQ(rank.predicted.activations,
              activation_bytes(metadata, partition, rank.tensor, 4096, 64, {2048, DeviceKind::GPU, DType::BF16}));
  EXPECT_EQ(to_json(plan)["stepTokens"], 2048);
  EXPECT_EQ(plan_from_json(to_json(plan)).step_tokens, 2048);
  EXPECT_THAT(describe(plan), HasSubstr("KV blocks of 16 tokens, prompts in chunks of 2048 tokens\n"));
}

TEST(StepTokens, ACpuPrefillsIn512TokensAndItsPlanDoesNotSaySo) {
  const Plan plan = planned(llama_7b(), cpus(2, 80 * gibi));
  EXPECT_EQ(plan.step_tokens, 512);
  EXPECT_FALSE(to_json(plan).contains("stepTokens")) << "plans that older controllers stored stay as they are";
  EXPECT_EQ(plan_from_json(to_json(plan)).step_tokens, 512);
  EXPECT_THAT(describe(plan), testing::Not(HasSubstr("chunks")));
}

TEST(StepTokens, AreNoMoreThanTheLongestPromptNeeds) {
  for (const auto& [length, tokens] :
       {std::pair<int64_t, int64_t>{100, 512}, {512, 512}, {513, 1024}, {1024, 1024}, {1025, 2048}, {4096, 2048}})
    EXPECT_EQ(planned(llama_7b(), gpu(80 * gibi), {.max_sequence_length = length}).step_tokens, tokens) << length;
}

TEST(StepTokens, ModelsThatDoNotGenerateBatchRowsOfAnyLength) {
  EXPECT_EQ(planned(encoder(), gpu(16 * gibi)).step_tokens, 2048);
  EXPECT_EQ(planned(encoder(), cpus(1, 16 * gibi)).step_tokens, 512);
}

TEST(StepTokens, SparseAttentionHoldsTheScoresOfABlockOfQueries) {
  ModelMetadata metadata = encoder();
  const Partition whole = make_partition(metadata, 1, DType::F32);
  const auto bytes = [&](int64_t length, DeviceKind kind) {
    return activation_bytes(metadata, whole, 0, length, 1, {512, kind, DType::F32});
  };
  const int64_t dense = bytes(8192, DeviceKind::CPU);
  metadata.stacks[0].query_block = 64;
  EXPECT_LT(4 * bytes(8192, DeviceKind::CPU), dense);
  EXPECT_LE(bytes(16384, DeviceKind::CPU), 2 * bytes(8192, DeviceKind::CPU));
  EXPECT_EQ(bytes(8192, DeviceKind::GPU), bytes(8192, DeviceKind::CPU));
}

TEST(StepTokens, RowsOfAnExpertStandBesideTheSumOfAll) {
  ModelMetadata metadata = encoder();
  const Partition whole = make_partition(metadata, 1, DType::F32);
  const auto bytes = [&] { return activation_bytes(metadata, whole, 0, 16, 1, {512, DeviceKind::CPU, DType::F32}); };
  const int64_t before = bytes(), hidden = metadata.stacks[0].hidden;
  for (Part& part : metadata.parts)
    if (part.axis == Axis::Ffn) part.routed = {8, 2};
  EXPECT_EQ(bytes(), before + 4 * 512 * 2 * hidden);
}

TEST(StepTokens, RelativePositionsHoldTheProductsOfTheirRows) {
  ModelMetadata metadata = encoder();
  const Partition whole = make_partition(metadata, 1, DType::F32);
  const auto bytes = [&](DeviceKind kind) {
    return activation_bytes(metadata, whole, 0, 512, 1, {512, kind, DType::F32});
  };
  const int64_t cpu = bytes(DeviceKind::CPU), gpu = bytes(DeviceKind::GPU), heads = metadata.stacks[0].heads;
  metadata.stacks[0].relative_rows = 512;
  const int64_t few = bytes(DeviceKind::CPU);
  EXPECT_GE(few, cpu + 4 * 2 * heads * 512 * 512 / 2);
  EXPECT_GE(bytes(DeviceKind::GPU), gpu + 4 * 2 * heads * 512 * 512);
  metadata.stacks[0].relative_rows = 4096;  // of which a text of 512 tokens reads 1024
  EXPECT_LE(bytes(DeviceKind::CPU), 3 * few);
}

TEST(StepTokens, IntegersAreMadeBesideTheirNumbers) {
  ModelMetadata metadata = encoder();
  const Partition whole = make_partition(metadata, 1, DType::F32);
  const auto bytes = [&](DeviceKind kind) {
    return activation_bytes(metadata, whole, 0, 512, 1, {512, kind, DType::F32});
  };
  const int64_t floats = bytes(DeviceKind::CPU);
  metadata.stacks[0].integers = true;
  EXPECT_EQ(bytes(DeviceKind::CPU), 4 * floats);
  EXPECT_GE(bytes(DeviceKind::GPU), 4 * floats) << "no kernel of a GPU computes these scores";
}

TEST(StepTokens, AMemoryHasKeysAndValuesBesideThoseOfTokens) {
  ModelMetadata metadata = encoder();
  const Partition whole = make_partition(metadata, 1, DType::F32);
  const auto bytes = [&] { return activation_bytes(metadata, whole, 0, 512, 1, {512, DeviceKind::CPU, DType::F32}); };
  const int64_t before = bytes(), heads = metadata.stacks[0].heads, width = heads * metadata.stacks[0].head_dim;
  metadata.stacks[0].memory = 1600;
  EXPECT_GE(bytes(), before + 4 * (1600 * 2 * (metadata.stacks[0].hidden + width) + 2 * heads * 512 * 1600));
}

/// An encoder of images with 577 positions, and a decoder of text with 128.
ModelMetadata captions() {
  ModelMetadata metadata = encoder();
  metadata.task = "generate";
  metadata.stacks[0].media = true;
  metadata.stacks[0].positions = 577;
  StackMetadata decoder = metadata.stacks[0];
  decoder.name = "decoder";
  decoder.media = false;
  decoder.causal = decoder.cross = true;
  decoder.positions = 128;
  metadata.stacks.push_back(decoder);
  return metadata;
}

TEST(StepTokens, AnImageHasItsOwnLengthBesideTheAnswers) {
  ModelMetadata metadata = captions();
  EXPECT_EQ(source_length(metadata, 128), 577);
  EXPECT_EQ(blocks_per_sequence(metadata, 128), blocks_for(128) + blocks_for(577));
  EXPECT_EQ(planned(metadata, cpus(1, 16 * gibi)).sequence_length, 128);
  metadata.stacks[0].positions = 0;  // audio is as long as the longest sequence
  EXPECT_EQ(source_length(metadata, 128), 128);
  metadata.stacks[1].cross = false;
  EXPECT_EQ(source_length(metadata, 128), 0);
}

TEST(StepTokens, AnImageLongerThanTheBudgetCountsInAStep) {
  ModelMetadata metadata = captions();
  const Partition whole = make_partition(metadata, 1, DType::F32);
  const auto bytes = [&] { return activation_bytes(metadata, whole, 0, 128, 1, {512, DeviceKind::CPU, DType::F32}); };
  metadata.stacks[0].positions = 128;
  const int64_t small = bytes();
  metadata.stacks[0].positions = 2048;
  EXPECT_GT(bytes(), 4 * small);
}

TEST(StepTokens, TokensOfTwoRowsNeedTheBytesOfTwiceAsMany) {
  ModelMetadata metadata = llama_7b();
  metadata.stacks[0].causal = false;
  metadata.task = "forward";
  const Partition whole = make_partition(metadata, 1, DType::F32);
  const auto bytes = [&](int64_t length) {
    return activation_bytes(metadata, whole, 0, length, 1, {512, DeviceKind::CPU, DType::F32});
  };
  const int64_t twice = bytes(2048);
  metadata.stacks[0].rows_per_token = 2;
  EXPECT_EQ(bytes(1024), twice);
}

TEST(StepTokens, TakeAtMostAnEighthOfWhatIsLeft) {
  const ModelMetadata metadata = llama_7b();
  const Partition whole = make_partition(metadata, 1, DType::BF16);
  const auto activations = [&](int64_t tokens) {
    return activation_bytes(metadata, whole, 0, 4096, 64, {tokens, DeviceKind::GPU, DType::BF16});
  };
  int64_t before = 0;
  for (int64_t memory = 15 * gibi; memory <= 24 * gibi; memory += gibi / 16) {
    const Decision decision = decide(metadata, gpu(memory), {.strategy = Strategy::Tensor});
    if (!decision.plan) {
      EXPECT_EQ(before, 0) << memory;
      continue;
    }
    const Plan& plan = *decision.plan;
    const Memory& predicted = plan.ranks[0].predicted;
    const int64_t one = 4096 * kv_bytes_per_token(metadata, whole, 0, DType::BF16),
                  left = memory - (predicted.total() - predicted.kv - predicted.activations + one + activations(512));
    EXPECT_LE(predicted.total(), memory);
    EXPECT_EQ(predicted.activations, activations(plan.step_tokens));
    EXPECT_LE(8 * (predicted.activations - activations(512)), left);
    if (plan.step_tokens < 2048) {
      EXPECT_GT(8 * (activations(2 * plan.step_tokens) - activations(512)), left);
    }
    EXPECT_GE(plan.step_tokens, before) << memory;
    before = plan.step_tokens;
  }
  EXPECT_EQ(before, 2048);
  EXPECT_EQ(planned(metadata, gpu(16 * gibi), {.strategy = Strategy::Tensor, .max_concurrency = 1}).step_tokens, 512)
      << "it fits, with little left";
}

TEST(StepTokens, OfGatheredWeightsAndOfStagesArePlannedToo) {
  EXPECT_EQ(planned(llama_7b(), gpu(80 * gibi, 4), {.strategy = Strategy::Sharded}).step_tokens, 2048);
  const ModelMetadata metadata = llama_7b();
  const Plan stages = planned(metadata, gpu(80 * gibi, 2), {.strategy = Strategy::Pipeline});
  EXPECT_EQ(stages.step_tokens, 2048);
  EXPECT_EQ(hop_bytes(metadata, 2, 4096, 2048), 4 * hop_bytes(metadata, 2, 4096));
  for (const RankPlan& rank : stages.ranks) EXPECT_GT(rank.predicted.activations, hop_bytes(metadata, 2, 4096, 2048));
}

TEST(StepTokens, ThatArePositiveAreReadAndOthersAreRefused) {
  nlohmann::json plan = to_json(planned(llama_7b(), gpu(80 * gibi)));
  plan["stepTokens"] = 1024;
  EXPECT_EQ(plan_from_json(plan).step_tokens, 1024);
  plan["stepTokens"] = 0;
  EXPECT_THROW(plan_from_json(plan), std::invalid_argument);
}

TEST(GpuActivations, HaveNoScoresButKeysAndValuesInRowsAndQueriesIn16Bits) {
  const ModelMetadata metadata = decoder(
      {.layers = 2, .hidden = 512, .heads = 8, .kv_heads = 8, .head_dim = 64, .ffn = 64, .vocab = 512, .positions = 0});
  const Partition whole = make_partition(metadata, 1, DType::F32);
  const int64_t attention = 1024 * 64 * (2 * 8 + 2 * 8) + 4 * 8 * 64 * 100 + 1024 * 64 * 8;
  EXPECT_EQ(activation_bytes(metadata, whole, 0, 100, 1, {1024, DeviceKind::GPU, DType::F32}),
            4 * (5 * 1024 * 512 + attention + 2 * 512));
}

TEST(GpuActivations, HaveATileOfWidenedWeightsWithI8) {
  const auto tile = [](const ModelMetadata& metadata) {
    const Partition whole = make_partition(metadata, 1, DType::I8);
    return activation_bytes(metadata, whole, 0, 100, 1, {512, DeviceKind::GPU, DType::I8}) -
           activation_bytes(metadata, whole, 0, 100, 1, {512, DeviceKind::GPU, DType::BF16});
  };
  const ModelMetadata small = with_matrices(decoder({.layers = 2,
                                                     .hidden = 512,
                                                     .heads = 8,
                                                     .kv_heads = 8,
                                                     .head_dim = 64,
                                                     .ffn = 64,
                                                     .vocab = 512,
                                                     .positions = 0}));
  const int64_t quantised = 512 * 512 + 8 * 2 * 64 * 512 + 8 * 64 * 2 * 512 + 64 * 2 * 512;
  EXPECT_EQ(tile(small), 4 * quantised) << "an F32 checkpoint is multiplied in fp32";
  const ModelMetadata large = with_matrices(llama_7b());
  EXPECT_EQ(tile(large), 2 * widened_tile_bytes + 64 * (11008 * 3 / 2) * 2);
  const Partition whole = make_partition(large, 1, DType::I8);
  EXPECT_EQ(activation_bytes(large, whole, 0, 100, 1, {512, DeviceKind::CPU, DType::I8}),
            activation_bytes(large, whole, 0, 100, 1));
}

}  // namespace
}  // namespace pm::test
