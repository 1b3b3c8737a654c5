// Runs, parts and units: every byte of every weight is some rank's, where the layers look for it.
#include <random>

#include "tests/unit/worker/parallel/kept.h"
#include "planner/spread.h"
#include "worker/ops/linear.h"

namespace pm::parallel {
namespace {

struct KeptWeights : testing::Test {
  const policy::Resolved resolved{policy::tiny_gpt2()};   // matrices lie transposed, q, k and v in one
  std::vector<std::unique_ptr<KeptRank>> ranks_of(Strategy strategy, int n, int64_t buffer = 0) {
    std::vector<std::unique_ptr<KeptRank>> ranks;
    for (auto& world : comm::in_process(n, std::chrono::seconds(20))) ranks.push_back(std::make_unique<KeptRank>(resolved, plan_of(resolved.model, strategy, n, buffer), world));
    return ranks;
  }
};

TEST_F(KeptWeights, PartsOfAllRanksAreTheWeights) {
  const std::vector<at::Tensor> products = products_of(resolved);
  for (const int n : {1, 2, 3, 5}) {
    const auto ranks = ranks_of(Strategy::Sharded, n);
    const Units& units = ranks[0]->units;
    for (size_t layer = 0; layer < 3; ++layer) {
      const size_t number = units.weight(2 + static_cast<int>(layer) * 5).run;   // after the two tables come a bias and four matrices a layer
      std::vector<std::byte> together;
      for (const auto& rank : ranks) {
        const KeptRun& run = rank->units.run(number);
        EXPECT_EQ(run.part, part_of_run(run.bytes, static_cast<int>(&rank - ranks.data()), n));
        const auto* data = static_cast<const std::byte*>(run.kept.const_data_ptr());
        together.insert(together.end(), data, data + run.kept.numel());
      }
      ASSERT_EQ(static_cast<int64_t>(together.size()), units.run(number).bytes);
      for (int i = 0; i < 4; ++i) {
        const Kept& weight = units.weight(2 + static_cast<int>(layer) * 5 + 1 + i);
        const at::Tensor found = at::from_blob(together.data() + weight.offset, weight.shape, at::TensorOptions(weight.type));
        EXPECT_TRUE(same(found, products[layer * 4 + static_cast<size_t>(i)])) << "layer " << layer << ", matrix " << i << ", " << n << " ranks";
      }
    }
  }
}

TEST_F(KeptWeights, AnyStretchOfARunIsReadAlike) {
  const auto rank = std::move(ranks_of(Strategy::Offload, 1)[0]);
  const size_t number = rank->units.weight(2).run;
  std::vector<std::byte> whole(static_cast<size_t>(rank->units.run(number).bytes));
  rank->units.read(rank->loader, number, 0, static_cast<int64_t>(whole.size()), whole.data());
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    const auto begin = std::uniform_int_distribution<int64_t>(0, static_cast<int64_t>(whole.size()))(random);
    const auto end = std::uniform_int_distribution<int64_t>(begin, static_cast<int64_t>(whole.size()))(random);
    std::vector<std::byte> part(static_cast<size_t>(end - begin));
    if (i == 100) rank->loader.go_on_past_cache();
    rank->units.read(rank->loader, number, begin, end, part.data());
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin)) << begin << ".." << end;
  }
}

TEST_F(KeptWeights, AnyStretchOfInt8RowsIsReadAlike) {
  make_finite(resolved);
  const Plan plan = plan_of(resolved.model, Strategy::Offload, 1, 0, DType::I8);
  KeptRank rank(resolved, plan, comm::in_process(1, std::chrono::seconds(20))[0]);
  const size_t number = rank.units.weight(2).run;
  const Kept& matrix = rank.units.weight(3);   // q, k and v after their bias
  EXPECT_EQ(matrix.row_bytes, 20 + 2) << "20 inputs share a scale";
  std::vector<std::byte> whole(static_cast<size_t>(rank.units.run(number).bytes));
  rank.units.read(rank.loader, number, 0, static_cast<int64_t>(whole.size()), whole.data());
  for (int64_t begin = 0; begin < static_cast<int64_t>(whole.size()); begin += 37) {
    const int64_t end = std::min<int64_t>(begin + 53, static_cast<int64_t>(whole.size()));
    std::vector<std::byte> part(static_cast<size_t>(end - begin));
    rank.units.read(rank.loader, number, begin, end, part.data());
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin)) << begin << ".." << end;
  }
}

TEST(Int8Rows, AreTheSameNumbersWhereverTheyLie) {
  for (const int64_t in : {7, 20, 64}) {   // with 7 no bf16 lies at the end of a row
    const at::Tensor bytes = at::empty({5, ops::int8_row_bytes(in, 32)}, at::kByte), w = at::randn({5, in});
    std::vector<int8_t> numbers(static_cast<size_t>(5 * in));
    std::vector<uint16_t> scales(static_cast<size_t>(5 * ((in + 31) / 32)));
    ASSERT_TRUE(ops::quantise(w.const_data_ptr<float>(), 5, in, 32, numbers.data(), scales.data()));
    const int64_t groups = (in + 31) / 32;
    for (int64_t row = 0; row < 5; ++row) {
      auto* to = bytes.mutable_data_ptr<uint8_t>() + row * bytes.size(1);
      std::memcpy(to, numbers.data() + row * in, static_cast<size_t>(in));
      std::memcpy(to + in, scales.data() + row * groups, static_cast<size_t>(2 * groups));
    }
    const ops::Int8Matrix apart = ops::int8_rows(bytes, in, 32);
    const ops::Int8Matrix together{apart.numbers.contiguous(), apart.scales.contiguous(), 32};
    EXPECT_LT((ops::dequantised(apart) - w).abs().max().item<float>(), 0.05);
    for (const int64_t rows : {1, 2, 5, 40}) {
      const at::Tensor x = at::randn({rows, in});
      EXPECT_TRUE(same(ops::linear(x, apart, {}), ops::linear(x, together, {}))) << in << " inputs, " << rows << " rows";
    }
  }
}

TEST_F(KeptWeights, ARouteGoesByEachLayerOnceAndByTilesWhereOneExceedsABuffer) {
  const auto whole = std::move(ranks_of(Strategy::Sharded, 1)[0]);
  std::vector<Stop> route = whole->units.route(whole->all());
  const int64_t buffer = plan_of(resolved.model, Strategy::Sharded, 1).gathering->buffer, table = 101 * 20 * 4;
  EXPECT_EQ(static_cast<int64_t>(route.size()), 2 + 3 + (table + buffer - 1) / buffer);   // two tables, three layers, tiles of the scores
  EXPECT_TRUE(route[0].look_up && route[1].look_up && !route[2].look_up);
  EXPECT_EQ(whole->units.route(whole->units.best()).size(), route.size() - 5);
  EXPECT_TRUE(whole->units.route(0).empty());

  const auto tiled = std::move(ranks_of(Strategy::Sharded, 1, 500)[0]);
  std::map<size_t, int64_t> came;
  for (const Stop& stop : tiled->units.route(tiled->all())) {
    if (stop.look_up) continue;
    const KeptUnit& unit = tiled->units.unit(stop.number);
    EXPECT_LE(unit.end - unit.begin, 500);
    came[unit.run] += unit.end - unit.begin;
  }
  for (const auto& [run, bytes] : came) EXPECT_EQ(bytes, tiled->units.run(run).bytes);
}

TEST_F(KeptWeights, ARowThatExceedsABufferIsRefused) {
  EXPECT_THROW(ranks_of(Strategy::Sharded, 1, 60), std::logic_error);
}

TEST_F(KeptWeights, WhatIsKeptIsWhatThePlannerCounts) {
  const Spread weights = spread(resolved.model.facts, DType::F32);
  for (const int n : {1, 2, 3, 4}) {
    const auto ranks = ranks_of(Strategy::Sharded, n);
    for (int rank = 0; rank < n; ++rank) {
      int64_t kept = 0;
      for (size_t run = 0; run < 5; ++run) kept += ranks[static_cast<size_t>(rank)]->units.run(run).kept.numel();
      EXPECT_NEAR(static_cast<double>(kept), static_cast<double>(weights.kept(rank, n)), 3 * 4 * (20 + 80));   // biases of the other linears were not asked for
    }
  }
}

}  // namespace
}  // namespace pm::parallel
