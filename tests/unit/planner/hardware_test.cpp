// SPDX-License-Identifier: Apache-2.0
// Tests hardware parameters, their sources, and the time models.
#include "planner/hardware.h"

#include <gtest/gtest.h>

#include "planner/memory.h"
#include "planner/strategies/layout.h"
#include "planner/weight_shards.h"
#include "situations.h"

namespace pm {
namespace {

TEST(Hardware, FiguresThatAreGivenStandBeforeTheTableAndThatBeforeWhatIsAssumed) {
  Hardware hardware = test::gpus(8, "NVIDIA-H100-80GB-HBM3");
  hardware.link_bandwidth = {200e9, "node label"};
  const HardwareValues values = hardware_values(hardware);
  EXPECT_EQ(values.link_bandwidth, (HardwareValue{200e9, "node label"}));
  EXPECT_EQ(values.memory_bandwidth, (HardwareValue{3350e9, "product table"}));
  EXPECT_EQ(values.node_bandwidth, (HardwareValue{1.25e9, "assumed"}));
  EXPECT_EQ(hardware_values(test::gpus(8, "NVIDIA-B9000")).memory_bandwidth.source, "assumed");
  EXPECT_EQ(hardware_values(test::cpus(2, test::gibi)).memory_bandwidth, (HardwareValue{10e9, "assumed"}));
}

TEST(Hardware, ProductsAreMatchedWhole) {
  EXPECT_EQ(product_of("NVIDIA-L40S")->bandwidth, 864e9);
  EXPECT_EQ(product_of("NVIDIA-L4")->bandwidth, 300e9);
  for (const char* other : {"NVIDIA-L40", "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", "Tesla-T4-SHARED", "", "nvidia-l4"})
    EXPECT_EQ(product_of(other), nullptr) << other;
}

TEST(Hardware, MemoryOfTheTableIsUsedOnlyWhereNoneIsKnown) {
  EXPECT_EQ(with_memory(test::gpus(1, "Tesla-T4")).device_memory, static_cast<int64_t>(15.2e9));
  EXPECT_EQ(with_memory(test::gpus(1, "Tesla-T4")).memory_source, "product table");
  Hardware known = test::gpus(1, "Tesla-T4");
  known.device_memory = 10 * test::gibi;
  EXPECT_EQ(with_memory(known).device_memory, 10 * test::gibi);
  EXPECT_EQ(with_memory(test::gpus(1, "")).device_memory, 0);
}

Demand demand(const Hardware& hardware, int64_t concurrency) {
  return {.kind = hardware.kind,
          .precision = DType::F32,
          .device_memory = 64 * test::gibi,
          .sequence_length = 512,
          .concurrency = concurrency,
          .devices_of_a_node = hardware.devices,
          .hardware_values = hardware_values(hardware)};
}

TEST(Times, OfOneDeviceAreItsBytesByItsBandwidth) {
  const ModelMetadata metadata = test::decoder({});
  const Layout layout = data_parallel(metadata, {}, demand(test::cpus(1, 64 * test::gibi), 1));
  const int64_t table_of_positions = 1024 * 768,
                cached = kv_bytes_per_token(metadata, layout.stages[0].partition, 0, DType::F32) * 256;
  EXPECT_DOUBLE_EQ(layout.estimate.token_seconds,
                   static_cast<double>((metadata.parameters - table_of_positions) * 4 + cached) / 10e9);
  EXPECT_DOUBLE_EQ(layout.estimate.tokens_per_second, 1 / layout.estimate.token_seconds);
}

/// A decoder whose FFN columns are those of 64 experts, of which a token reads 8.
ModelMetadata with_experts() {
  ModelMetadata metadata = test::decoder({.positions = 0});
  for (Part& part : metadata.parts)
    if (part.axis == Axis::Ffn) part.routed = {64, 8};
  return metadata;
}

TEST(Times, OfExpertsAreThoseThatSomeTokenIsExpectedToChoose) {
  const ModelMetadata metadata = with_experts();
  int64_t routed = 0;
  for (const Part& part : metadata.parts)
    if (part.routed.experts > 0) routed += part.units * part.elements_per_unit * part.count;
  const auto share = [&](int64_t concurrency) {  // of the experts that a step reads
    const Layout layout = data_parallel(metadata, {}, demand(test::cpus(1, 64 * test::gibi), concurrency));
    const int64_t cached = kv_bytes_per_token(metadata, layout.stages[0].partition, 0, DType::F32) * 256 * concurrency;
    const double step = static_cast<double>(concurrency) / layout.estimate.tokens_per_second,
                 read = step * 10e9 - static_cast<double>(cached);
    return (read / 4 - static_cast<double>(metadata.parameters - routed)) / static_cast<double>(routed);
  };
  EXPECT_NEAR(share(1), 8.0 / 64, 1e-6);
  EXPECT_NEAR(share(2), 1 - 56.0 / 64 * 56 / 64, 1e-6);
}

TEST(Times, OfAPipelineAreBoundedByItsSlowestStage) {
  const ModelMetadata metadata = test::decoder({.vocab = 64, .positions = 0});
  const Layout one = data_parallel(metadata, {}, demand(test::cpus(4, 64 * test::gibi), 4)),
               four = data_parallel(metadata, {1, 4, 1}, demand(test::cpus(4, 64 * test::gibi), 4));
  EXPECT_EQ(four.micro_batches, 4);
  EXPECT_GT(four.estimate.token_seconds,
            data_parallel(metadata, {}, demand(test::cpus(4, 64 * test::gibi), 1)).estimate.token_seconds);
  EXPECT_NEAR(four.estimate.tokens_per_second, one.estimate.tokens_per_second,
              0.35 * one.estimate.tokens_per_second);  // reads a quarter for a quarter of the sequences
}

TEST(Times, OfMicroBatchesFollowTheBubble) {
  const ModelMetadata metadata = test::encoder();
  Demand asked = demand(test::cpus(4, 64 * test::gibi), 64);
  asked.micro_batches = 1;
  const double once = data_parallel(metadata, {1, 4, 1}, asked).estimate.tokens_per_second;
  for (const int m : {2, 4, 8, 16}) {
    asked.micro_batches = m;
    EXPECT_NEAR(data_parallel(metadata, {1, 4, 1}, asked).estimate.tokens_per_second / once, 4.0 * m / (m + 3), 1e-9)
        << m;
  }
  asked.micro_batches.reset();
  EXPECT_EQ(data_parallel(metadata, {1, 4, 1}, asked).micro_batches, 16);
}

TEST(Times, OfTensorGroupsPayForTheirExchanges) {
  Hardware hardware = test::cpus(2, 64 * test::gibi);
  hardware.link_latency = {1, "spec"};
  const Layout layout = data_parallel(test::decoder({}), {2, 1, 1}, demand(hardware, 1));
  EXPECT_NEAR(layout.estimate.token_seconds, 25, 0.1);  // two a layer and one of the table
}

TEST(Times, OfDataParallelRanksAddUp) {
  const ModelMetadata metadata = test::decoder({});
  const Hardware hardware = test::cpus(4, 64 * test::gibi);
  const Layout one = data_parallel(metadata, {}, demand(hardware, 16)),
               four = data_parallel(metadata, {1, 1, 4}, demand(hardware, 64));
  EXPECT_DOUBLE_EQ(four.estimate.tokens_per_second, 4 * one.estimate.tokens_per_second);
  EXPECT_DOUBLE_EQ(data_parallel(metadata, {1, 1, 4}, demand(hardware, 2)).estimate.tokens_per_second,
                   2 * data_parallel(metadata, {}, demand(hardware, 1)).estimate.tokens_per_second);
}

TEST(FullySharded, HoldsItsShareAndTwoBuffersAndWaitsForTheRest) {
  const ModelMetadata metadata = test::decoder({.vocab = 64, .positions = 0});
  const Demand asked = demand(test::cpus(4, 64 * test::gibi), 4);
  const int64_t whole = make_partition(metadata, 1, DType::F32).weight_bytes(metadata, 0),
                layer = (12 * 768 * 768 + 9 * 768 + 3072 - 2 * 768) * int64_t{4};
  EXPECT_NEAR(static_cast<double>(largest_layer(metadata, DType::F32)), static_cast<double>(layer), 16 * 768);
  const WeightShards weights = shard_weights(metadata, DType::F32);
  const FullyShardedLayout quarter = sharded(metadata, 4, Unit::Layer, asked),
                           streamed = offloaded(metadata, 4, Unit::Layer, Residency::File, asked);
  int64_t kept = 0;
  for (int rank = 0; rank < 4; ++rank) {
    kept += weights.rank_bytes(rank, 4);
    EXPECT_EQ(quarter.layout.weights[static_cast<size_t>(rank)],
              weights.whole + weights.rank_bytes(rank, 4) + 2 * weights.largest_flat_param());
    EXPECT_NEAR(static_cast<double>(weights.rank_bytes(rank, 4)), static_cast<double>(whole - weights.whole) / 4,
                13 * 128);
  }
  EXPECT_EQ(kept + weights.whole, whole);
  EXPECT_EQ(streamed.layout.ranks[0].weights, weights.whole + 2 * weights.largest_flat_param());
  // thirteen gather units, the LM head among them, and three exchanges for the lookup; the first unit is waited for
  const double fetched = 0.75 * static_cast<double>(whole - weights.whole) / 5e9 + (13 + 3) * 20e-6;
  EXPECT_NEAR(quarter.layout.estimate.token_seconds, fetched * 14 / 13, 1e-5);
  EXPECT_NEAR(streamed.layout.estimate.token_seconds,
              (fetched + static_cast<double>(whole - weights.whole) / 0.6e9) * 14 / 13, 1e-5);
}

}  // namespace
}  // namespace pm
