// SPDX-License-Identifier: Apache-2.0
// Tests the choice of layouts, its reasons, and the messages of refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "models.h"
#include "planner/draft_plan.h"
#include "planner/memory.h"
#include "planner/plan.h"
#include "planner/weight_shards.h"
#include "situations.h"

namespace pm {
namespace {

using testing::HasSubstr;
constexpr int64_t gibi = int64_t{1} << 30;

Hardware cpu(int devices, int64_t memory) {
  return {.kind = DeviceKind::CPU, .devices = devices, .device_memory = memory, .memory_source = "spec"};
}

Plan planned(const Decision& decision) {
  EXPECT_TRUE(decision.plan) << (decision.refusal ? decision.refusal->message : "");
  return decision.plan.value_or(Plan{});
}

Refusal refused(const Decision& decision) {
  EXPECT_TRUE(decision.refusal) << (decision.plan ? decision.plan->message : "");
  return decision.refusal.value_or(Refusal{});
}

TEST(Decide, PredictsExactWeightsAndFitsEveryTermIntoTheDevice) {
  const ModelMetadata metadata = test::gpt_neo_2_7b();
  const Plan plan = planned(decide(metadata, cpu(3, 4 * gibi), {}));
  const Partition partition = make_partition(metadata, 3, DType::F16);
  for (const RankPlan& rank : plan.ranks) {
    EXPECT_EQ(rank.predicted.weights, partition.weight_bytes(metadata, rank.rank));
    EXPECT_EQ(rank.predicted.kv, plan.kv_blocks * 16 * kv_bytes_per_token(metadata, partition, rank.rank, DType::F16));
    EXPECT_LE(rank.predicted.total(), 4 * gibi);
    EXPECT_EQ(rank.shard()["decoder"]["layers"], nlohmann::json({0, 32}));
    EXPECT_EQ(rank.shard()["decoder"]["heads"].size(), 2u);
    EXPECT_TRUE(rank.shard().contains("vocab"));
  }
  EXPECT_EQ(plan.concurrency, std::min<int64_t>(64, plan.kv_blocks / (2048 / 16)));
}

TEST(Decide, ADraftModelTakesItsMemoryFromEveryDevice) {
  ModelMetadata metadata = test::gpt_neo_2_7b();
  const Plan without = planned(decide(metadata, cpu(2, 4 * gibi), {.max_concurrency = 2}));
  EXPECT_FALSE(without.draft);
  metadata.draft = {.weights = gibi / 4, .activations = gibi / 4, .kv_per_token = gibi / 8192};
  EXPECT_EQ(metadata_from_json(to_json(metadata)), metadata);
  const PlanConstraints constraints{.max_concurrency = 2};
  const Plan plan = planned(decide(metadata, cpu(2, 5 * gibi), constraints));
  EXPECT_EQ(plan.draft, (PlannedDraft{gibi, 2 * 2048 / 16})) << "two sequences of 2,048 tokens";
  EXPECT_EQ(plan.device_memory, 4 * gibi);
  EXPECT_EQ(plan.kv_blocks, without.kv_blocks);
  EXPECT_THAT(plan.memory_source, HasSubstr("without 1.0 GiB for what drafts"));
  EXPECT_THAT(describe(plan), HasSubstr("rank 0 keeps at most 1.0 GiB for what drafts"));
  EXPECT_EQ(plan_from_json(to_json(plan)).draft, plan.draft);
  EXPECT_EQ(planned(decide(metadata, cpu(2, 16 * gibi), {})).draft->kv_blocks, 8 * 2048 / 16)
      << "of 64 sequences eight may draft";
  metadata.adapter_elements = gibi / 4;
  EXPECT_THAT(refused(decide(metadata, cpu(2, gibi), constraints)).message,
              HasSubstr("a device has 1.0 GiB, of which up to 1.0 GiB for adapters and 1.0 GiB for what drafts"));
}

TEST(Decide, WhatADraftModelNeedsIsThatOfAPlanOfItsOwn) {
  const ModelMetadata metadata = test::gpt_neo_2_7b();
  const Plan plan = draft_plan(metadata, 512);
  ASSERT_EQ(plan.ranks.size(), 1u);
  EXPECT_EQ(plan.sequence_length, 512);
  EXPECT_EQ(plan.precision, metadata.dtype);
  EXPECT_EQ(plan.kv_blocks, 8 * 512 / 16);
  const DraftNeeds needs = draft_needs(metadata);
  EXPECT_EQ(needs.weights, plan.ranks[0].predicted.weights);
  EXPECT_EQ(needs.kv_per_token, plan.ranks[0].predicted.kv / 8 / 512);
  EXPECT_GT(needs.activations, plan.ranks[0].predicted.activations) << "of the longest sequences";
}

TEST(Decide, AdaptersTakeTheirMemoryFromEveryDevice) {
  ModelMetadata metadata = test::gpt_neo_2_7b();
  const Plan without = planned(decide(metadata, cpu(2, 4 * gibi), {}));
  EXPECT_EQ(without.adapter_bytes, 0);
  metadata.adapter_elements = gibi / 4;
  EXPECT_EQ(metadata_from_json(to_json(metadata)), metadata);
  const Plan plan = planned(decide(metadata, cpu(2, 5 * gibi), {}));
  EXPECT_EQ(plan.adapter_bytes, gibi) << "numbers of four bytes on CPUs";
  EXPECT_EQ(plan.device_memory, 4 * gibi);
  EXPECT_EQ(plan.kv_blocks, without.kv_blocks);
  EXPECT_THAT(plan.memory_source, HasSubstr("without 1.0 GiB for adapters"));
  EXPECT_THAT(describe(plan), HasSubstr("at most 1.0 GiB for adapters"));
  EXPECT_EQ(plan_from_json(to_json(plan)).adapter_bytes, gibi);
  Hardware gpu = cpu(2, 5 * gibi);
  gpu.kind = DeviceKind::GPU;
  EXPECT_EQ(planned(decide(metadata, gpu, {})).adapter_bytes, gibi / 2) << "the type of activations, F16";
  const Refusal refusal = refused(decide(metadata, cpu(2, gibi), {}));
  EXPECT_EQ(refusal.reason, Reason::DoesNotFit);
  EXPECT_THAT(refusal.message, HasSubstr("a device has 1.0 GiB, of which up to 1.0 GiB for adapters would be kept"));
  EXPECT_EQ(refused(decide(metadata, cpu(2, 2 * gibi), {.strategy = Strategy::Tensor})).reason, Reason::DoesNotFit)
      << "what they leave is too little for the weights";
}

TEST(Decide, KvBytesFollowTheKvHeadsOfTheRank) {
  const ModelMetadata metadata = test::gpt_neo_2_7b();
  EXPECT_EQ(kv_bytes_per_token(metadata, make_partition(metadata, 1, DType::F16), 0, DType::F16),
            2 * 32 * 20 * 128 * 2);
  EXPECT_EQ(kv_bytes_per_token(metadata, make_partition(metadata, 3, DType::F16), 2, DType::F16), 2 * 32 * 6 * 128 * 2);
}

TEST(Decide, AKvHeadThatRanksShareIsCachedWholeByEachAndItsExchangeIsCounted) {
  const ModelMetadata shared = test::decoder(
      {.layers = 2, .hidden = 512, .heads = 8, .kv_heads = 1, .head_dim = 64, .ffn = 64, .vocab = 512, .positions = 0});
  const Plan plan = planned(decide(shared, cpu(4, 2 * gibi), {.max_sequence_length = 64}));
  for (const RankPlan& rank : plan.ranks) {
    EXPECT_EQ(rank.predicted.kv, plan.kv_blocks * 16 * 2 * 2 * 64 * 4);
    EXPECT_EQ(rank.shard()["decoder"]["kv"], nlohmann::json({0, 1}));
    EXPECT_EQ(rank.shard()["decoder"]["kv_rows"], nlohmann::json({rank.rank * 16, rank.rank * 16 + 16}));
  }
  // 512 tokens: residual and others 5 x 512, q, k, v and the result of two heads, then all ranks' k and v and one
  // head's three times
  EXPECT_EQ(activation_bytes(shared, make_partition(shared, 4, DType::F32), 0, 64, 1),
            4 * (5 * 512 * 512 + 512 * 64 * (2 * 2 + 2) + 512 * 64 * (2 + 6) + 2 * 512));
}

TEST(Decide, RefusesMetadataWhoseKvRowsAreNotWholeHeads) {
  ModelMetadata metadata = test::decoder({});
  metadata.parts.push_back({"decoder", 0, 1, Axis::KvRows, 100, 768, DType::F32, false});
  const Refusal refusal = refused(decide(metadata, cpu(2, gibi), {}));
  EXPECT_EQ(refusal.reason, Reason::InvalidSizes);
  EXPECT_THAT(refusal.message, HasSubstr("100 rows; expected a multiple of its head size 64"));
}

TEST(Decide, RefusesWhatDoesNotFitWithTheArithmeticAndTheCountThatWould) {
  const Refusal refusal = refused(decide(test::gpt_neo_2_7b(), cpu(1, 4 * gibi), {.strategy = Strategy::Tensor}));
  EXPECT_EQ(refusal.reason, Reason::DoesNotFit);
  for (const char* part :
       {"weights 4.9 GiB", "KV of one sequence of 2048 tokens 640.0 MiB", "runtime", "4.0 GiB per device (spec)",
        "the largest term is the weights", "The fewest such devices that fit: 2."}) {
    EXPECT_THAT(refusal.message, HasSubstr(part));
  }
}

TEST(Decide, NamesTheLargestTermWhenItIsNotTheWeights) {
  const ModelMetadata metadata = test::decoder({.layers = 2,
                                                .hidden = 1024,
                                                .heads = 16,
                                                .kv_heads = 16,
                                                .head_dim = 64,
                                                .ffn = 256,
                                                .vocab = 512,
                                                .positions = 0});
  const Refusal refusal = refused(decide(metadata, cpu(1, gibi), {.max_sequence_length = 1 << 20}));
  EXPECT_THAT(refusal.message, testing::AnyOf(HasSubstr("the largest term is the KV cache"),
                                              HasSubstr("the largest term is the activations")));
}

TEST(Decide, MentionsNoCacheForModelsOfOneForwardPass) {
  ModelMetadata metadata = test::decoder({.positions = 512});
  metadata.task = "embed";
  const Plan plan = planned(decide(metadata, cpu(2, 8 * gibi), {}));
  EXPECT_EQ(plan.kv_blocks, 0);
  for (const RankPlan& rank : plan.ranks) EXPECT_EQ(rank.predicted.kv, 0);
  EXPECT_THAT(plan.message, HasSubstr("no KV cache; each input in one pass, up to 512 tokens; "));
  for (const std::string& text : {plan.message, describe(plan)})
    EXPECT_THAT(text,
                testing::Not(testing::AnyOf(HasSubstr("room for"), HasSubstr("sequence"), HasSubstr("KV blocks"))));
  EXPECT_THAT(refused(decide(metadata, cpu(1, gibi / 8), {})).message, testing::Not(HasSubstr("KV")));
}

TEST(Decide, ObeysSizesAndOrdersRanksByDpRankThenStage) {
  const ModelMetadata metadata = test::decoder({.vocab = 64});
  const Plan plan =
      planned(decide(metadata, cpu(12, 4 * gibi),
                     {.tensor = 3, .pipeline = 2, .data = 2, .max_sequence_length = 64, .max_concurrency = 9}));
  EXPECT_EQ(plan.reason, "UserFixed");
  ASSERT_EQ(plan.ranks.size(), 12u);
  for (int rank = 0; rank < 12; ++rank) {
    const RankPlan& one = plan.ranks[static_cast<size_t>(rank)];
    EXPECT_EQ(one.rank, (one.dp_rank * 2 + one.stage) * 3 + one.tensor);
    EXPECT_EQ(one.layers, stages(metadata, 2, 3, DType::F32)[static_cast<size_t>(one.stage)]);
    const ModelMetadata held = stage_metadata(metadata, one.layers);
    const Partition partition = make_partition(held, plan.tensor, plan.precision);
    EXPECT_EQ(one.predicted.weights, partition.weight_bytes(held, one.tensor));
    EXPECT_EQ(one.predicted.kv, plan.kv_blocks * 16 * kv_bytes_per_token(held, partition, one.tensor, DType::F32));
    EXPECT_EQ(one.predicted.communicator, (segment_bytes(12) + 11) / 12);
  }
  EXPECT_EQ(plan.kv_blocks, 4 * 5);  // nine sequences on two data-parallel ranks: five on the larger
  EXPECT_EQ(plan.concurrency, 9);
  EXPECT_EQ(plan.shm_bytes, (12 * 4 + 2 * 11 + 12 * 12 / 8 + 1) * (int64_t{1} << 20));
}

TEST(Decide, GivesRemainingDevicesToTheStrategy) {
  const Plan plan = planned(decide(test::decoder({}), cpu(8, 4 * gibi), {.strategy = Strategy::Pipeline, .data = 2}));
  EXPECT_EQ(plan.strategy, Strategy::Pipeline);
  EXPECT_EQ(plan.pipeline, 4);
  EXPECT_EQ(plan.tensor, 1);
  EXPECT_EQ(planned(decide(test::decoder({}), cpu(4, 4 * gibi), {.strategy = Strategy::Data})).data, 4);
  EXPECT_EQ(planned(decide(test::decoder({}), cpu(4, 4 * gibi), {.strategy = Strategy::Tensor})).tensor, 4);
}

TEST(Decide, RefusesSizesWithTheNumbers) {
  const auto words = [](const PlanConstraints& constraints, int n) {
    return refused(decide(test::decoder({}), cpu(n, 4 * gibi), constraints)).message;
  };
  EXPECT_THAT(words({.tensor = 3}, 4),
              HasSubstr("tensor=3, and 4 devices are given to a group; expected sizes whose product divides 4"));
  EXPECT_THAT(words({.tensor = 2, .pipeline = 1, .data = 1}, 4),
              HasSubstr("tensor=2 x pipeline=1 x data=1 is 2, and 4 devices are given to a group; expected sizes whose "
                        "product is 4"));
  EXPECT_THAT(
      words({.tensor = 13}, 13),
      HasSubstr("tensor=13, but the decoder has 12 attention heads and each rank needs at least one; use at most 12"));
  EXPECT_THAT(words({.pipeline = 13}, 13),
              HasSubstr("pipeline=13, but the model has 12 layers and each stage needs at least one; use at most 12"));
  EXPECT_THAT(words({.strategy = Strategy::Data, .tensor = 4}, 4),
              HasSubstr("strategy Data, but tensor=4 take all 4 devices; leave some to it"));
  EXPECT_THAT(words({.strategy = Strategy::Data, .data = 1}, 4),
              HasSubstr("strategy Data with data=1 leaves nothing to it"));
  EXPECT_THAT(words({.tensor = 0}, 4), HasSubstr("tensor=0; expected 1 to 1024"));
  EXPECT_THAT(words({.strategy = Strategy::Sharded, .tensor = 2}, 4),
              HasSubstr("strategy Sharded is not combined with tensor or pipeline; give data=4 alone"));
  EXPECT_THAT(words({.strategy = Strategy::Offload, .data = 2}, 4),
              HasSubstr("strategy Offload with data=2, and 4 devices are given to a group"));
  EXPECT_THAT(words({.strategy = Strategy::Offload, .offload_to = Residency::HostMemory}, 4),
              HasSubstr("the memory of a rank on a CPU is the host's own"));
  EXPECT_THAT(words({.micro_batches = 0}, 4), HasSubstr("0 micro-batches; expected 1 to 1024"));
}

TEST(Decide, ShardsWeightsFullyOnRequest) {
  const ModelMetadata metadata = test::decoder({});
  const WeightShards weights = shard_weights(metadata, DType::F32);
  const Plan sharded = planned(decide(metadata, cpu(3, 4 * gibi), {.strategy = Strategy::Sharded, .data = 3}));
  EXPECT_EQ(sharded.data, 3);
  EXPECT_EQ(sharded.reason, "UserFixed");
  ASSERT_TRUE(sharded.gathering);
  EXPECT_EQ(sharded.gathering->from, Residency::Device);
  EXPECT_EQ(sharded.gathering->buffer, weights.largest_flat_param());
  for (const RankPlan& rank : sharded.ranks) {
    EXPECT_EQ(rank.dp_rank, rank.rank);
    EXPECT_EQ(rank.predicted.weights,
              weights.whole + weights.rank_bytes(rank.rank, 3) + 2 * weights.largest_flat_param());
    EXPECT_EQ(rank.predicted.kv, sharded.kv_blocks * 16 * 12 * 2 * 768 * 4);
  }
  const Plan offloaded = planned(decide(metadata, cpu(1, 4 * gibi), {.strategy = Strategy::Offload}));
  EXPECT_EQ(offloaded.gathering->from, Residency::File);
  EXPECT_EQ(offloaded.ranks[0].predicted.weights, weights.whole + 2 * weights.largest_flat_param());
  EXPECT_THAT(
      offloaded.message,
      HasSubstr("weights are gathered in two buffers of 27.0 MiB: all weights are read from files in each pass"));
}

TEST(Decide, ShardsInt8WithItsScales) {
  const ModelMetadata metadata = test::with_matrices(test::decoder({}));
  const WeightShards weights = shard_weights(metadata, DType::I8);
  int64_t quantised = 0, scales = 0, other = 0;  // of all layers and tables
  for (const Part& part : metadata.parts) {
    const Quantised& q = part.quantised;
    quantised += part.count * part.units * q.elements;
    scales += part.count * (part.units * q.scales + (part.units + 31) / 32 * q.block_scales);
    other += part.count * part.units * (part.elements_per_unit - q.elements) * size_of(metadata.dtype);
  }
  EXPECT_EQ(weights.whole + weights.rank_bytes(0, 1), quantised + 2 * scales + other);
  const Plan sharded =
      planned(decide(metadata, cpu(3, 4 * gibi), {.strategy = Strategy::Sharded, .precision = DType::I8}));
  EXPECT_EQ(sharded.gathering->buffer, weights.largest_flat_param());
  for (const RankPlan& rank : sharded.ranks)
    EXPECT_EQ(rank.predicted.weights,
              weights.whole + weights.rank_bytes(rank.rank, 3) + 2 * weights.largest_flat_param());
  const Plan whole = planned(decide(metadata, cpu(3, 4 * gibi), {.strategy = Strategy::Sharded}));
  EXPECT_LT(sharded.gathering->buffer, whole.gathering->buffer / 3);
}

TEST(Decide, CountsWhatStaysInTheHostsMemory) {
  const ModelMetadata metadata = test::decoder({});
  const Hardware gpus{.kind = DeviceKind::GPU, .devices = 3, .device_memory = 4 * gibi};
  const Plan plan =
      planned(decide(metadata, gpus, {.strategy = Strategy::Offload, .offload_to = Residency::HostMemory}));
  const WeightShards weights = shard_weights(metadata, plan.precision);
  EXPECT_EQ(plan.gathering->host,
            std::max({weights.rank_bytes(0, 3), weights.rank_bytes(1, 3), weights.rank_bytes(2, 3)}));
  EXPECT_EQ(plan_from_json(to_json(plan)).gathering->host, plan.gathering->host);
  EXPECT_EQ(planned(decide(metadata, gpus, {.strategy = Strategy::Offload})).gathering->host, 0);
}

TEST(Decide, TilesLayersWhereBuffersOfALayerDoNotFit) {
  const ModelMetadata metadata = test::wide();
  const PlanConstraints asked{.strategy = Strategy::Offload, .max_sequence_length = 16};
  const Plan roomy = planned(decide(metadata, cpu(1, 64 * gibi), asked)),
             tight = planned(decide(metadata, cpu(1, 8 * gibi), asked));
  EXPECT_EQ(roomy.gathering->buffer, shard_weights(metadata, DType::BF16).largest_flat_param());
  EXPECT_EQ(tight.gathering->buffer, (roomy.gathering->buffer + 15) / 16);
  EXPECT_THAT(tight.message, HasSubstr("Offload x 1 in tiles"));
}

TEST(Decide, GathersWeightsWhereNothingElseFits) {
  const Plan plan = planned(decide(test::gpt_neo_2_7b(), cpu(1, 3 * gibi), {}));
  EXPECT_EQ(plan.reason, "NothingElseFits");
  EXPECT_EQ(plan.strategy, Strategy::Offload);
  EXPECT_THAT(plan.message,
              HasSubstr("Offload x 1 over 1 device: no layout fits that keeps the weights on the devices"));
}

TEST(Decide, KeepsTensorGroupsInsideANodeUnlessTheyAreAskedFor) {
  Hardware nodes = cpu(12, 4 * gibi);
  nodes.devices_per_node = 8;  // six on each of two nodes
  EXPECT_THAT(refused(decide(test::decoder({}), nodes, {.pipeline = 3, .data = 1})).message,
              HasSubstr("12 devices lie at 6 on a node, so that a tensor group of 4 would span nodes"));
  EXPECT_EQ(planned(decide(test::decoder({}), nodes, {.tensor = 4})).tensor, 4);
  EXPECT_EQ(planned(decide(test::decoder({}), nodes, {.tensor = 3, .data = 1})).pipeline, 4);
}

TEST(Decide, RefusesDevicesOfUnknownMemoryAndPrecisionsThatAreNotServed) {
  EXPECT_EQ(refused(decide(test::decoder({}), cpu(1, 0), {})).reason, Reason::DeviceMemoryUnknown);
  EXPECT_EQ(refused(decide(test::decoder({}), cpu(1, gibi), {.precision = DType::U8})).reason,
            Reason::UnsupportedPrecision);
  ModelMetadata integers = test::decoder({});
  integers.dtype = DType::F16;
  integers.stacks[0].integers = true;
  EXPECT_EQ(planned(decide(integers, cpu(1, gibi), {})).precision, DType::F32);
  for (const DType precision : {DType::F16, DType::BF16, DType::I8, DType::I4, DType::I8A8}) {
    const Refusal refusal = refused(decide(integers, cpu(1, gibi), {.precision = precision}));
    EXPECT_EQ(refusal.reason, Reason::UnsupportedPrecision);
    EXPECT_THAT(refusal.message, HasSubstr("computes in integers of its own that F32 holds"));
  }
  for (const DType precision : {DType::I8, DType::I4, DType::I8A8})
    EXPECT_THAT(refused(decide(test::decoder({}), cpu(1, gibi), {.precision = precision})).message,
                HasSubstr("the metadata of this model names none"));
}

TEST(Decide, CountsCodesWithTheirScalesAndKeepsKeysAndValuesInTheCheckpointsType) {
  const ModelMetadata metadata = test::with_matrices(test::gpt_neo_2_7b());
  const auto of = [&](DType precision) {
    return planned(decide(metadata, cpu(2, 64 * gibi), {.tensor = 2, .precision = precision, .max_concurrency = 1}));
  };
  const Plan narrow = of(DType::I8), wide = of(DType::F16);
  int64_t sum = 0, whole = 0;
  for (const RankPlan& rank : narrow.ranks) sum += rank.predicted.weights;
  for (const RankPlan& rank : wide.ranks) whole += rank.predicted.weights;
  const int64_t matrices = 32 * 12 * int64_t{2560} * 2560 +
                           int64_t{50257} * 2560;  // q, k, v, out: 4, up and down: 8; the head that is the table
  EXPECT_EQ(whole - sum, matrices - matrices / 32 * 2);
  int64_t least = 0;
  for (const RankPlan& rank : of(DType::I4).ranks) least += rank.predicted.weights;
  EXPECT_EQ(sum - least, (matrices - int64_t{50257} * 2560) / 2) << "the head keeps its eight bits";
  EXPECT_EQ(narrow.ranks[0].predicted.kv, wide.ranks[0].predicted.kv);
}

TEST(Decide, HoldsGroupsOfOneHeadInEightBitsWhereTheRestHasFour) {
  ModelMetadata metadata = test::with_matrices(test::gpt_neo_2_7b());
  const auto weights = [&](DType precision) {
    return planned(decide(metadata, cpu(1, 64 * gibi), {.precision = precision})).ranks[0].predicted.weights;
  };
  const int64_t i8 = weights(DType::I8), i4 = weights(DType::I4);
  int64_t wide = 0;
  for (Part& part : metadata.parts) {
    if (part.axis != Axis::Heads) continue;
    part.quantised.wide_elements = part.quantised.elements / 2;  // the projection after attention
    part.quantised.wide_scales = part.quantised.scales / 2;
    wide += part.count * part.units * part.quantised.wide_elements;
  }
  ASSERT_GT(wide, 0);
  EXPECT_EQ(weights(DType::I8), i8);
  EXPECT_EQ(weights(DType::I4) - i4, wide / 2);
  EXPECT_EQ(metadata_from_json(to_json(metadata)), metadata);
}

TEST(Decide, CountsOneScaleForEachRowOfARankWhereActivationsAreRounded) {
  const ModelMetadata metadata = test::with_matrices(test::gpt_neo_2_7b());
  const int64_t head = int64_t{50257} * 2560, groups = head / 32 * 2;
  for (int ranks : {1, 2}) {
    const auto weights = [&](DType precision) {
      int64_t sum = 0;
      const Plan plan = planned(
          decide(metadata, cpu(ranks, 64 * gibi), {.tensor = ranks, .precision = precision, .max_concurrency = 1}));
      for (const RankPlan& rank : plan.ranks) sum += rank.predicted.weights;
      return sum;
    };
    const int64_t matrices = 32 * 12 * int64_t{2560} * 2560;
    // q, k, v and up have a scale for each row; what goes back to the hidden size has one on each rank
    const int64_t scales = 32 * (int64_t{3} * 2560 + 4 * 2560 + ranks * int64_t{2} * 2560) * 2;
    EXPECT_EQ(weights(DType::F16) - weights(DType::I8A8), matrices + head - scales - groups) << ranks << " ranks";
  }
  EXPECT_EQ(metadata_from_json(to_json(metadata)), metadata);
}

TEST(Decide, RefusesI4AndI8A8OnGpus) {
  const Hardware gpus{.kind = DeviceKind::GPU, .devices = 1, .device_memory = 64 * gibi};
  const ModelMetadata metadata = test::with_matrices(test::gpt_neo_2_7b());
  for (const DType precision : {DType::I4, DType::I8A8}) {
    const Refusal refusal = refused(decide(metadata, gpus, {.precision = precision}));
    EXPECT_EQ(refusal.reason, Reason::UnsupportedPrecision);
    EXPECT_THAT(refusal.message, HasSubstr(std::string(name_of(precision)) + " is served on CPUs only"));
  }
}

TEST(Decide, ServesNoLongerSequencesThanTheModelHasPositionsAndSaysSo) {
  const Plan plan = planned(decide(test::decoder({}), cpu(1, 8 * gibi), {.max_sequence_length = 4096}));
  EXPECT_EQ(plan.sequence_length, 1024);
  EXPECT_THAT(plan.message, HasSubstr("4096 tokens were requested, the model has 1024 positions"));
}

TEST(Decide, TowersOfDifferentLengthsArePlannedForTheLongestAndAnAnswerForTheShortest) {
  ModelMetadata metadata = test::decoder({});
  metadata.stacks.push_back(metadata.stacks[0]);
  metadata.stacks.back().positions = 50;
  EXPECT_EQ(planned(decide(metadata, cpu(1, 8 * gibi), {})).sequence_length, 50);
  metadata.task = "similarity";
  EXPECT_EQ(planned(decide(metadata, cpu(1, 8 * gibi), {})).sequence_length, 1024);
}

TEST(Decide, SharedMemoryDoesNotDependOnTheModel) {
  EXPECT_EQ(planned(decide(test::decoder({}), cpu(2, 16 * gibi), {})).shm_bytes,
            planned(decide(test::gpt_neo_2_7b(), cpu(2, 16 * gibi), {})).shm_bytes);
}

class AnyMemory : public testing::TestWithParam<int> {};

TEST_P(AnyMemory, NeverIsExceededAndMoreOfItNeverHurts) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  const int n = std::uniform_int_distribution<int>(1, 8)(random);
  const ModelMetadata metadata = test::random_decoder(random, n);
  bool fitted = false;
  int64_t concurrency = 0;
  for (int64_t memory = gibi / 4; memory <= 1024 * gibi; memory *= 2) {
    const Decision decision = decide(metadata, cpu(n, memory), {});
    EXPECT_TRUE(decision.plan || !fitted)
        << "fits less memory than " << memory << ", but not that; seed " << GetParam();
    ASSERT_NE(decision.plan.has_value(), decision.refusal.has_value());
    if (!decision.plan) continue;
    fitted = true;
    if (!decision.plan->gathering) {  // chosen when memory is short: it leaves more of it to the KV cache
      EXPECT_GE(decision.plan->concurrency, concurrency) << "seed " << GetParam();
      concurrency = decision.plan->concurrency;
    }
    for (const RankPlan& rank : decision.plan->ranks)
      EXPECT_LE(rank.predicted.total(), memory) << "seed " << GetParam();
  }
  EXPECT_TRUE(fitted);
}

INSTANTIATE_TEST_SUITE_P(Seeds, AnyMemory, testing::Range(1, 60));

}  // namespace
}  // namespace pm
