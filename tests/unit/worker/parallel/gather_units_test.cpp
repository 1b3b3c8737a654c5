// SPDX-License-Identifier: Apache-2.0
// Tests flat parameters, shards and gather units: every byte of every weight belongs to a rank, at the offset that
// layers read.
#include <random>

#include "planner/weight_shards.h"
#include "tests/unit/worker/parallel/sharded_rank.h"
#include "worker/ops/linear.h"

namespace pm::parallel {
namespace {

struct ShardedWeights : testing::Test {
  const policy::Resolved resolved{policy::tiny_gpt2()};  // matrices are stored transposed, q, k and v in one
  std::vector<std::unique_ptr<ShardedRank>> ranks_of(Strategy strategy, int n, int64_t buffer = 0) {
    std::vector<std::unique_ptr<ShardedRank>> ranks;
    for (auto& world : comm::in_process(n, std::chrono::seconds(20)))
      ranks.push_back(std::make_unique<ShardedRank>(resolved, plan_of(resolved.model, strategy, n, buffer), world));
    return ranks;
  }
};

TEST_F(ShardedWeights, ShardsOfAllRanksAreTheWeights) {
  const std::vector<at::Tensor> products = products_of(resolved);
  for (const int n : {1, 2, 3, 5}) {
    const auto ranks = ranks_of(Strategy::Sharded, n);
    const GatherUnits& units = ranks[0]->units;
    for (size_t layer = 0; layer < 3; ++layer) {
      const size_t number = units.weight(2 + static_cast<int>(layer) * 5)
                                .flat_param;  // after the two tables come a bias and four matrices a layer
      std::vector<std::byte> together;
      for (const auto& rank : ranks) {
        const FlatParam& run = rank->units.flat_param(number);
        EXPECT_EQ(run.shard_range, flat_param_shard(run.bytes, static_cast<int>(&rank - ranks.data()), n));
        const auto* data = static_cast<const std::byte*>(run.local_shard.const_data_ptr());
        together.insert(together.end(), data, data + run.local_shard.numel());
      }
      ASSERT_EQ(static_cast<int64_t>(together.size()), units.flat_param(number).bytes);
      for (int i = 0; i < 4; ++i) {
        const ShardedWeight& weight = units.weight(2 + static_cast<int>(layer) * 5 + 1 + i);
        const at::Tensor found =
            at::from_blob(together.data() + weight.offset, weight.shape, at::TensorOptions(weight.type));
        EXPECT_TRUE(same(found, products[layer * 4 + static_cast<size_t>(i)]))
            << "layer " << layer << ", matrix " << i << ", " << n << " ranks";
      }
    }
  }
}

TEST_F(ShardedWeights, AnyRangeOfAFlatParamIsReadAlike) {
  const auto rank = std::move(ranks_of(Strategy::Offload, 1)[0]);
  const size_t number = rank->units.weight(2).flat_param;
  std::vector<std::byte> whole(static_cast<size_t>(rank->units.flat_param(number).bytes));
  rank->units.read(rank->loader, number, 0, static_cast<int64_t>(whole.size()), whole.data());
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    const auto begin = std::uniform_int_distribution<int64_t>(0, static_cast<int64_t>(whole.size()))(random);
    const auto end = std::uniform_int_distribution<int64_t>(begin, static_cast<int64_t>(whole.size()))(random);
    std::vector<std::byte> part(static_cast<size_t>(end - begin));
    if (i == 100) rank->loader.use_direct_io();
    rank->units.read(rank->loader, number, begin, end, part.data());
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin)) << begin << ".." << end;
  }
}

TEST_F(ShardedWeights, AnyRangeOfInt8RowsIsReadAlike) {
  make_finite(resolved);
  const Plan plan = plan_of(resolved.model, Strategy::Offload, 1, 0, DType::I8);
  ShardedRank rank(resolved, plan, comm::in_process(1, std::chrono::seconds(20))[0]);
  const size_t number = rank.units.weight(2).flat_param;
  const ShardedWeight& matrix = rank.units.weight(3);  // q, k and v after their bias
  EXPECT_EQ(matrix.row_bytes, 20 + 2) << "20 inputs share a scale";
  std::vector<std::byte> whole(static_cast<size_t>(rank.units.flat_param(number).bytes));
  rank.units.read(rank.loader, number, 0, static_cast<int64_t>(whole.size()), whole.data());
  for (int64_t begin = 0; begin < static_cast<int64_t>(whole.size()); begin += 37) {
    const int64_t end = std::min<int64_t>(begin + 53, static_cast<int64_t>(whole.size()));
    std::vector<std::byte> part(static_cast<size_t>(end - begin));
    rank.units.read(rank.loader, number, begin, end, part.data());
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin)) << begin << ".." << end;
  }
}

TEST(RowsOfCodes, AreTheSameNumbersInAnyLayout) {
  for (const int bits : {8, 4}) {
    for (const int64_t in : {7, 20, 64}) {  // with 7 inputs of a byte each no bf16 scale is aligned at the end of a row
      const at::Tensor w = at::randn({5, in});
      const ops::QuantizedMatrix together = ops::quantized(w, {.bits = bits});
      const at::Tensor bytes = at::cat({together.codes.view(at::kByte), together.scales.view(at::kByte)}, 1);
      ASSERT_EQ(bytes.size(1), together.layout.row_bytes());
      const ops::QuantizedMatrix apart = ops::quantized_rows(bytes, together.layout);
      EXPECT_LT((ops::dequantized(apart) - w).abs().max().item<float>(), bits == 8 ? 0.05 : 0.6);
      for (const int64_t rows : {1, 2, 5, 40}) {
        const at::Tensor x = at::randn({rows, in});
        EXPECT_TRUE(same(ops::linear(x, apart, {}), ops::linear(x, together, {})))
            << bits << " bits, " << in << " inputs, " << rows << " rows";
      }
    }
  }
}

TEST_F(ShardedWeights, AScheduleGathersEachLayerOnceAndInTilesWhereItExceedsABuffer) {
  const auto whole = std::move(ranks_of(Strategy::Sharded, 1)[0]);
  std::vector<GatherOp> schedule = whole->units.schedule(whole->all());
  const int64_t buffer = plan_of(resolved.model, Strategy::Sharded, 1).gathering->buffer, table = 101 * 20 * 4;
  EXPECT_EQ(static_cast<int64_t>(schedule.size()),
            2 + 3 + (table + buffer - 1) / buffer);  // two tables, three layers, tiles of the scores
  EXPECT_TRUE(schedule[0].look_up && schedule[1].look_up && !schedule[2].look_up);
  EXPECT_EQ(whole->units.schedule(whole->units.argmax_mask()).size(), schedule.size() - 5);
  EXPECT_TRUE(whole->units.schedule(0).empty());

  const auto tiled = std::move(ranks_of(Strategy::Sharded, 1, 500)[0]);
  std::map<size_t, int64_t> gathered;
  for (const GatherOp& op : tiled->units.schedule(tiled->all())) {
    if (op.look_up) continue;
    const GatherUnit& unit = tiled->units.unit(op.number);
    EXPECT_LE(unit.end - unit.begin, 500);
    gathered[unit.flat_param] += unit.end - unit.begin;
  }
  for (const auto& [run, bytes] : gathered) EXPECT_EQ(bytes, tiled->units.flat_param(run).bytes);
}

TEST_F(ShardedWeights, ARowThatExceedsABufferIsRefused) {
  EXPECT_THROW(ranks_of(Strategy::Sharded, 1, 60), std::logic_error);
}

TEST_F(ShardedWeights, HeldBytesAreWhatThePlannerCounts) {
  const WeightShards weights = shard_weights(resolved.model.metadata, DType::F32);
  for (const int n : {1, 2, 3, 4}) {
    const auto ranks = ranks_of(Strategy::Sharded, n);
    for (int rank = 0; rank < n; ++rank) {
      int64_t held = 0;
      for (size_t run = 0; run < 5; ++run)
        held += ranks[static_cast<size_t>(rank)]->units.flat_param(run).local_shard.numel();
      EXPECT_NEAR(static_cast<double>(held), static_cast<double>(weights.rank_bytes(rank, n)),
                  3 * 4 * (20 + 80));  // biases of the other linear layers were not requested
    }
  }
}

}  // namespace
}  // namespace pm::parallel
