// SPDX-License-Identifier: Apache-2.0
// Tests partitions: exact numbers of a known model, and properties of any model.
#include "planner/partition.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "models.h"
#include "planner/plan.h"

namespace pm {
namespace {

constexpr double mebi = 1024 * 1024;

double fullest(const ModelMetadata& metadata, int n, DType dtype) {
  const Partition partition = make_partition(metadata, n, dtype);
  int64_t most = 0;
  for (int rank = 0; rank < n; ++rank) most = std::max(most, partition.weight_bytes(metadata, rank));
  return static_cast<double>(most) / mebi;
}

std::vector<Range> ranges(const Partition& partition, const std::string& stack, Axis axis, int64_t units) {
  std::vector<Range> out;
  for (int rank = 0; rank < partition.ranks(); ++rank) out.push_back(partition.range(stack, axis, units, rank));
  return out;
}

std::vector<int64_t> sizes(const std::vector<Range>& ranges) {
  std::vector<int64_t> out;
  for (const Range& range : ranges) out.push_back(range.size());
  return out;
}

/// Returns the replicated bytes that every rank holds.
int64_t held_whole(const ModelMetadata& metadata) {
  int64_t total = 0;
  for (const Part& part : metadata.parts) {
    if (part.axis == Axis::None) total += part.units * part.elements_per_unit * part.count * size_of(part.dtype);
  }
  return total;
}

TEST(Partition, GptNeoOnOneDeviceHoldsExactlyItsParameters) {
  const ModelMetadata metadata = test::gpt_neo_2_7b();
  ASSERT_EQ(metadata.parameters, 2'651'307'520);
  EXPECT_EQ(make_partition(metadata, 1, DType::F16).weight_bytes(metadata, 0), 2 * 2'651'307'520);
  EXPECT_NEAR(fullest(metadata, 1, DType::F16), 5057.0, 0.05);
}

TEST(Partition, GptNeoMeetsThePublishedTargetsAtTwoThreeFourAndEight) {
  const ModelMetadata metadata = test::gpt_neo_2_7b();
  EXPECT_LE(fullest(metadata, 2, DType::F16), 2534.1);
  EXPECT_LE(fullest(metadata, 3, DType::F16), 1694);  // target 1,725
  EXPECT_LE(fullest(metadata, 4, DType::F16), 1272.6);
  EXPECT_LE(fullest(metadata, 8, DType::F16), 642.5);  // target 690; heads are 3 and 2, FFN columns balance them
}

TEST(Partition, LayersOfUnlikeHeadsArePartitionedAlone) {
  ModelMetadata metadata = test::decoder({.layers = 6, .heads = 16, .kv_heads = 8, .head_dim = 8, .qkv_bias = false});
  metadata.stacks[0].layouts = {{16, 2, 32, {{5, 1, 1}}}};
  metadata.parts.push_back({"decoder", 5, 1, Axis::KvRows, 64, 10, DType::F32, false});  // 8 x 8 rows, as the others
  metadata.parts.back().layout = 1;
  const Partition partition = make_partition(metadata, 3, DType::F32);
  const auto sizes_of = [&](Axis axis, int64_t units, int layout) {
    std::vector<int64_t> out;
    for (int rank = 0; rank < 3; ++rank) out.push_back(partition.range("decoder", axis, units, rank, layout).size());
    return out;
  };
  EXPECT_EQ(sizes_of(Axis::Heads, 16, 0), (std::vector<int64_t>{6, 6, 4}));
  EXPECT_EQ(sizes_of(Axis::Heads, 16, 1), (std::vector<int64_t>{4, 4, 8}));
  EXPECT_EQ(sizes_of(Axis::KvRows, 64, 0), (std::vector<int64_t>{24, 24, 16}));
  EXPECT_EQ(sizes_of(Axis::KvRows, 64, 1), (std::vector<int64_t>{16, 16, 32}));  // two ranks share the first kv head
  EXPECT_EQ(kv_bytes_per_token(metadata, partition, 0, DType::F32), 2 * (5 * 3 * 8 + 1 * 1 * 32) * 4);
  metadata.stacks[0].reuses = {{3, 0, {{4, 1, 1}}}};
  EXPECT_EQ(kv_bytes_per_token(metadata, partition, 0, DType::F32), 2 * (4 * 3 * 8 + 1 * 1 * 32) * 4);
}

TEST(Partition, HeadsThatDoNotDivideDifferByOneAndFfnColumnsBalance) {
  const ModelMetadata metadata = test::gpt_neo_2_7b();
  const Partition partition = make_partition(metadata, 3, DType::F16);
  EXPECT_EQ(sizes(ranges(partition, "decoder", Axis::Heads, 20)), (std::vector<int64_t>{7, 7, 6}));
  const auto columns = sizes(ranges(partition, "decoder", Axis::Ffn, 10240));
  EXPECT_LT(columns[0], columns[2]);
  EXPECT_EQ(columns[0] % 32, 0);
  EXPECT_EQ(columns[1] % 32, 0);
}

TEST(Partition, KvHeadsAreWholeGroupsWhileThereAreEnough) {
  const ModelMetadata metadata = test::decoder({.heads = 32, .kv_heads = 8, .head_dim = 24});
  const Partition partition = make_partition(metadata, 3, DType::F32);
  EXPECT_EQ(sizes(ranges(partition, "decoder", Axis::Kv, 8)), (std::vector<int64_t>{3, 3, 2}));
  EXPECT_EQ(sizes(ranges(partition, "decoder", Axis::Heads, 32)), (std::vector<int64_t>{12, 12, 8}));
  EXPECT_EQ(ranges(partition, "decoder", Axis::KvRows, 192), (std::vector<Range>{{0, 72}, {72, 144}, {144, 192}}));
}

TEST(Partition, FewerKvHeadsThanRanksAreAttendedToByManyAndTheirHeadsAndRowsSplit) {
  const ModelMetadata metadata = test::decoder({.heads = 8, .kv_heads = 2, .head_dim = 96});
  const Partition partition = make_partition(metadata, 4, DType::F32);
  EXPECT_EQ(ranges(partition, "decoder", Axis::Kv, 2), (std::vector<Range>{{0, 1}, {0, 1}, {1, 2}, {1, 2}}));
  EXPECT_EQ(ranges(partition, "decoder", Axis::Heads, 8), (std::vector<Range>{{0, 2}, {2, 4}, {4, 6}, {6, 8}}));
  EXPECT_EQ(ranges(partition, "decoder", Axis::KvRows, 192),
            (std::vector<Range>{{0, 48}, {48, 96}, {96, 144}, {144, 192}}));
}

TEST(Partition, RowsOfAHeadThatSomeRanksShareDifferByOneAndThoseOfAnotherAreItsRanksOwn) {
  const ModelMetadata metadata = test::decoder({.heads = 6, .kv_heads = 2, .head_dim = 5});
  EXPECT_EQ(ranges(make_partition(metadata, 3, DType::F32), "decoder", Axis::Kv, 2),
            (std::vector<Range>{{0, 1}, {0, 1}, {1, 2}}));
  EXPECT_EQ(ranges(make_partition(metadata, 3, DType::F32), "decoder", Axis::KvRows, 10),
            (std::vector<Range>{{0, 3}, {3, 5}, {5, 10}}));
  EXPECT_EQ(ranges(make_partition(metadata, 5, DType::F32), "decoder", Axis::KvRows, 10),
            (std::vector<Range>{{0, 2}, {2, 4}, {4, 5}, {5, 8}, {8, 10}}));
}

TEST(Partition, MoreRanksThanRowsOfAKvHeadLeaveSomeWithoutAny) {
  const Partition partition = make_partition(test::decoder({.heads = 6, .kv_heads = 1, .head_dim = 2}), 4, DType::F32);
  EXPECT_EQ(ranges(partition, "decoder", Axis::KvRows, 2), (std::vector<Range>{{0, 1}, {1, 2}, {2, 2}, {2, 2}}));
  EXPECT_EQ(ranges(partition, "decoder", Axis::Kv, 1), (std::vector<Range>{{0, 1}, {0, 1}, {0, 1}, {0, 1}}));
}

TEST(Partition, LayersWithOtherHeadsArePartitionedByTheStacksGroupAndHeadSize) {
  ModelMetadata metadata = test::decoder({.heads = 12, .kv_heads = 4, .head_dim = 10});
  metadata.parts.push_back({"decoder", 12, 1, Axis::KvRows, 20, 100, DType::F32, false});
  const Partition partition = make_partition(metadata, 3, DType::F32);
  EXPECT_EQ(ranges(partition, "decoder", Axis::KvRows, 40), (std::vector<Range>{{0, 20}, {20, 30}, {30, 40}}));
  EXPECT_EQ(ranges(partition, "decoder", Axis::KvRows, 20), (std::vector<Range>{{0, 5}, {5, 10}, {10, 20}}));
  EXPECT_EQ(ranges(partition, "decoder", Axis::Kv, 2), (std::vector<Range>{{0, 1}, {0, 1}, {1, 2}}));
  EXPECT_EQ(ranges(partition, "decoder", Axis::Heads, 6), (std::vector<Range>{{0, 2}, {2, 3}, {3, 6}}));
}

TEST(Partition, KvRowsThatAreNoWholeHeadsAreRefusedWithBothNumbers) {
  ModelMetadata metadata = test::decoder({.heads = 12, .kv_heads = 4, .head_dim = 10});
  metadata.parts.push_back({"decoder", 12, 1, Axis::KvRows, 25, 100, DType::F32, false});
  try {
    make_partition(metadata, 2, DType::F32);
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(),
                 "stack \"decoder\" has key and value projections of 25 rows; expected a multiple of its head size 10");
  }
}

TEST(Partition, OneKvHeadOfSeventyOneHeadsIsNoLongerHeldByEachRank) {
  ModelMetadata falcon = test::decoder({.layers = 32,
                                        .hidden = 4544,
                                        .heads = 71,
                                        .kv_heads = 1,
                                        .head_dim = 64,
                                        .ffn = 18176,
                                        .vocab = 65024,
                                        .positions = 0,
                                        .dtype = DType::F16,
                                        .qkv_bias = false});
  for (const int n : {2, 4, 8}) {
    EXPECT_LE(fullest(falcon, n, DType::F16) * n, 1.001 * static_cast<double>(falcon.checkpoint_bytes) / mebi)
        << n << " ranks";
  }
}

TEST(Partition, OneKvHeadServesEveryRank) {
  const ModelMetadata metadata = test::decoder({.heads = 71, .kv_heads = 1, .head_dim = 64});
  const Partition partition = make_partition(metadata, 3, DType::F32);
  EXPECT_EQ(sizes(ranges(partition, "decoder", Axis::Heads, 71)), (std::vector<int64_t>{24, 24, 23}));
  EXPECT_EQ(ranges(partition, "decoder", Axis::Kv, 1), (std::vector<Range>{{0, 1}, {0, 1}, {0, 1}}));
}

TEST(Partition, PositionTablesArePartitionedByRowsLikeVocabularies) {
  const ModelMetadata metadata = test::decoder({.positions = 1023});
  const Partition partition = make_partition(metadata, 4, DType::F32);
  int64_t end = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const Range rows = partition.range("decoder", Axis::Positions, 1023, rank);
    EXPECT_EQ(rows.begin, end);
    EXPECT_NEAR(static_cast<double>(rows.size()), 1023 / 4.0, 1);
    end = rows.end;
  }
  EXPECT_EQ(end, 1023);
  EXPECT_THROW(partition.range("decoder", Axis::Positions, 1024, 0), std::out_of_range);
}

TEST(Partition, VocabulariesOfEqualSizeArePartitionedAlike) {
  ModelMetadata metadata = test::decoder({});
  metadata.parts.push_back({"", -1, 1, Axis::Vocab, 50257, 768, DType::F32, false});
  const Partition partition = make_partition(metadata, 3, DType::F32);
  EXPECT_EQ(ranges(partition, "decoder", Axis::Vocab, 50257), ranges(partition, "", Axis::Vocab, 50257));
}

TEST(Partition, PartsWithKeepHoldTheirDtypeAndOthersThePlans) {
  ModelMetadata metadata{.stacks = {{"encoder", 1, 8, 2, 2, 4, 64, 0, 0}},
                         .parts = {{"encoder", 0, 1, Axis::Ffn, 64, 10, DType::F32, true},
                                   {"encoder", 0, 1, Axis::None, 1, 7, DType::F32, false}}};
  std::vector<int64_t> per_part;
  EXPECT_EQ(make_partition(metadata, 1, DType::F16).weight_bytes(metadata, 0, &per_part), 64 * 10 * 4 + 7 * 2);
  EXPECT_EQ(per_part, (std::vector<int64_t>{2560, 14}));
}

TEST(Partition, GroupsOfCodesStayWholeWhereOneRankShallHoldNearlyAllColumns) {
  // experts of 16 columns, one group, are one rank's alone: the other shall have the columns of dense layers
  ModelMetadata metadata = test::with_matrices(test::decoder({.ffn = 77}));
  Part experts{"decoder", 0, 12, Axis::Ffn, 16, 100000, DType::F32};
  experts.quantised = {100000, 3000, 100};
  metadata.parts.insert(metadata.parts.begin(), experts);  // partitioned first
  const Partition partition = make_partition(metadata, 2, DType::I8);
  const Range first = partition.range("decoder", Axis::Ffn, 77, 0),
              second = partition.range("decoder", Axis::Ffn, 77, 1);
  EXPECT_EQ(partition.range("decoder", Axis::Ffn, 16, 0).size() % 16, 0);
  EXPECT_EQ(first.end, second.begin);
  EXPECT_EQ(first.end % code_group, 0) << first.end;
  EXPECT_EQ(second.end, 77);
}

TEST(Partition, MoreRanksThanHeadsAreRefusedWithBothNumbers) {
  try {
    make_partition(test::decoder({.heads = 4, .kv_heads = 4, .head_dim = 192}), 5, DType::F32);
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("4 heads"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("5 ranks"), std::string::npos);
  }
}

TEST(Partition, UnknownUnitsAreOutOfRange) {
  const Partition partition = make_partition(test::decoder({}), 2, DType::F32);
  EXPECT_THROW(partition.range("decoder", Axis::Ffn, 17, 0), std::out_of_range);
  EXPECT_THROW(partition.range("decoder", Axis::Ffn, 3072, 2), std::out_of_range);
  EXPECT_EQ(partition.range("anything", Axis::None, 5, 1), (Range{0, 5}));
}

class AnyModel : public testing::TestWithParam<int> {};

TEST_P(AnyModel, IsCoveredByContiguousRangesAndBalanced) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  const int n = std::uniform_int_distribution<int>(1, 12)(random);
  const ModelMetadata metadata = test::random_decoder(random, n);
  const StackMetadata& stack = metadata.stacks[0];
  SCOPED_TRACE("seed " + std::to_string(GetParam()) + ", " + std::to_string(n) + " ranks, " +
               std::to_string(stack.heads) + " heads in " + std::to_string(stack.kv_heads) + " groups, ffn " +
               std::to_string(stack.ffn));
  const Partition partition = make_partition(metadata, n, metadata.dtype);
  for (const Partition::Row& row : partition.rows()) {
    ASSERT_EQ(row.ranges.size(), static_cast<size_t>(n));
    EXPECT_EQ(row.ranges.front().begin, 0);
    EXPECT_EQ(row.ranges.back().end, row.units);
    for (int rank = 0; rank < n; ++rank) {
      const Range& range = row.ranges[static_cast<size_t>(rank)];
      EXPECT_LE(range.begin, range.end);
      if (rank == 0) continue;
      const Range& before = row.ranges[static_cast<size_t>(rank - 1)];
      EXPECT_TRUE(range.begin == before.end || (row.axis == Axis::Kv && stack.kv_heads < n && range == before)) << rank;
    }
  }
  int64_t total = 0, most_heads = 0, least_heads = stack.heads;
  for (int rank = 0; rank < n; ++rank) {
    total += partition.weight_bytes(metadata, rank);
    const int64_t heads = partition.range("decoder", Axis::Heads, stack.heads, rank).size();
    most_heads = std::max(most_heads, heads);
    least_heads = std::min(least_heads, heads);
    EXPECT_GE(heads, 1);
  }
  EXPECT_EQ(total, metadata.checkpoint_bytes + (n - 1) * held_whole(metadata));
  if (stack.kv_heads >= n) {
    EXPECT_LE(most_heads - least_heads, stack.heads / stack.kv_heads);
  }
  for (int rank = 0; rank < n; ++rank) {  // each row of a rank belongs to a head that it attends to; all rows when no
                                          // other rank attends to the head
    const Range kv = partition.range("decoder", Axis::Kv, stack.kv_heads, rank),
                rows = partition.range("decoder", Axis::KvRows, stack.kv_heads * stack.head_dim, rank);
    EXPECT_GE(rows.begin, kv.begin * stack.head_dim) << rank;
    EXPECT_LE(rows.end, kv.end * stack.head_dim) << rank;
    if (stack.kv_heads >= n) {
      EXPECT_EQ(rows.size(), kv.size() * stack.head_dim) << rank;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, AnyModel, testing::Range(1, 200));

TEST(Partition, WideModelsStayWithinOnePercentOfTheIdealShare) {
  for (const int64_t heads : {16, 20, 25, 32, 40}) {
    const ModelMetadata metadata = test::decoder({.layers = 24,
                                                  .hidden = heads * 128,
                                                  .heads = heads,
                                                  .kv_heads = heads,
                                                  .head_dim = 128,
                                                  .ffn = heads * 512,
                                                  .vocab = 50257,
                                                  .positions = 2048,
                                                  .dtype = DType::BF16});
    for (const int n : {2, 3, 4, 5, 7, 8}) {
      const double share = static_cast<double>(metadata.checkpoint_bytes) / n / mebi,
                   whole = static_cast<double>(held_whole(metadata)) / mebi;
      const double most = fullest(metadata, n, DType::BF16);
      if (n <= 3) {
        EXPECT_LE(most / share, 1.01) << heads << " heads, " << n << " ranks";
      }
      // partitioned weights are even at any n; the rest is the position table and norms, which every rank holds
      EXPECT_LE((most - whole) / (share - whole / n), 1.0005) << heads << " heads, " << n << " ranks";
    }
  }
}

}  // namespace
}  // namespace pm
