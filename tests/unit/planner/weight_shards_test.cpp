// SPDX-License-Identifier: Apache-2.0
// Tests the shards of fully sharded weights: every byte has one owner, and ranks hold nearly equal bytes.
#include "planner/weight_shards.h"

#include <gtest/gtest.h>

#include "models.h"

namespace pm {
namespace {

TEST(WeightShards, ShardsOfAFlatParamCoverItAndBeginAtCacheLines) {
  for (const int64_t bytes : {0, 1, 63, 64, 100, 4096, 1000003}) {
    for (int n = 1; n <= 9; ++n) {
      int64_t end = 0;
      for (int rank = 0; rank < n; ++rank) {
        const Range part = flat_param_shard(bytes, rank, n);
        EXPECT_EQ(part.begin, end);
        EXPECT_EQ(part.begin % 64, 0);
        EXPECT_LE(std::abs(part.size() - bytes / n), 64) << bytes << " over " << n;
        end = part.end;
      }
      EXPECT_EQ(end, bytes);
    }
  }
}

TEST(WeightShards, RowsOfATableDifferByOneAtMost) {
  for (const int64_t rows : {1, 7, 50257}) {
    for (int n = 1; n <= 9; ++n) {
      int64_t end = 0;
      for (int rank = 0; rank < n; ++rank) {
        const Range part = table_shard(rows, rank, n);
        EXPECT_EQ(part.begin, end);
        EXPECT_LE(part.size() - rows / n, 1);
        EXPECT_GE(part.size() - rows / n, 0);
        end = part.end;
      }
      EXPECT_EQ(end, rows);
    }
  }
}

TEST(WeightShards, EveryByteIsHeldOnceOrByAll) {
  for (const ModelMetadata& metadata : {test::decoder({}), test::encoder_decoder(3, 2), test::repeating_encoder(12, 1),
                                        test::repeating_encoder(12, 3), test::gpt_neo_2_7b()}) {
    for (const DType precision : {DType::F32, DType::BF16}) {
      const WeightShards weights = shard_weights(metadata, precision);
      for (int n = 1; n <= 5; ++n) {
        int64_t kept = 0;
        for (int rank = 0; rank < n; ++rank) kept += weights.rank_bytes(rank, n);
        EXPECT_EQ(kept + weights.whole, make_partition(metadata, 1, precision).weight_bytes(metadata, 0))
            << metadata.model_type << " over " << n;
      }
    }
  }
}

TEST(WeightShards, NormsAndTablesThatLayersShareAreReplicated) {
  const WeightShards t5 = shard_weights(test::encoder_decoder(3, 2), DType::F32);
  EXPECT_EQ(t5.flat_params.size(), 5u);
  EXPECT_EQ(t5.flat_params.front().stack, "decoder");
  const int64_t norms = (3 * 2 + 2 * 3 + 2) * 512 * 4, buckets = 2 * 8 * 32 * 4;
  EXPECT_EQ(t5.whole, norms + buckets);
  ASSERT_EQ(t5.tables.size(), 1u);
  EXPECT_TRUE(t5.tables[0].scored);
}

TEST(WeightShards, LayersThatShareWeightsAreOneFlatParam) {
  const WeightShards albert = shard_weights(test::repeating_encoder(12, 3), DType::F32);
  ASSERT_EQ(albert.flat_params.size(), 3u);
  for (const pm::FlatParamInfo& run : albert.flat_params) EXPECT_EQ(run.layers, 4);
  EXPECT_EQ(albert.largest_flat_param(), (4 * 768 * 768 + 8 * 768 * 768) * int64_t{4});
  EXPECT_FALSE(albert.tables[0].scored);
}

}  // namespace
}  // namespace pm
