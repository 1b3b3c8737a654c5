// SPDX-License-Identifier: Apache-2.0
// Compares tensor_slices() with an independent description: each element of the stored tensor carries (matrix, unit,
// row in unit, column), and the slices of a range have to bring exactly those of the requested matrix and units, in
// order.
#include <gtest/gtest.h>

#include "worker/policy/tensor_slices.h"

namespace pm::policy {
namespace {

/// What lies in one output row of a fused tensor.
struct Label {
  int part;
  int64_t unit, inner;
  bool operator==(const Label&) const = default;
};

/// The output rows of a fused tensor as transformers' modules split them.
std::vector<Label> layout(Fused fused, int64_t heads, int64_t kv, int64_t dim) {
  std::vector<Label> rows;
  auto unit = [&](int part, int64_t index) {
    for (int64_t i = 0; i < dim; ++i) rows.push_back({part, index, i});
  };
  if (fused == Fused::Concat) {
    for (int part = 0; part < 3; ++part)
      for (int64_t h = 0; h < heads; ++h) unit(part, h);
  } else if (fused == Fused::PerHead) {
    for (int64_t h = 0; h < heads; ++h)
      for (int part = 0; part < 3; ++part) unit(part, h);
  } else if (fused == Fused::Blocks) {  // four, of queries, values and keys
    for (int64_t b = 0; b < 4; ++b)
      for (int part : {0, 2, 1})
        for (int64_t h = 0; h < heads / 4; ++h) unit(part, b * (heads / 4) + h);
  } else {
    for (int64_t g = 0; g < kv; ++g) {
      for (int64_t j = 0; j < heads / kv; ++j) unit(0, g * (heads / kv) + j);
      unit(1, g);
      unit(2, g);
    }
  }
  return rows;
}

struct Shape {
  Fused fused;
  int64_t heads, kv, dim;
  bool conv1d;
};
class FusedPieces : public testing::TestWithParam<Shape> {};

TEST_P(FusedPieces, BringTheUnitsOfTheirPart) {
  const auto [fused, heads, kv, dim, conv1d] = GetParam();
  const std::vector<Label> rows = layout(fused, heads, kv, dim);
  const int64_t out = static_cast<int64_t>(rows.size()), in = 6;
  for (const bool vector : {false, true}) {
    checkpoint::TensorInfo tensor{.shape = vector   ? std::vector<int64_t>{out}
                                           : conv1d ? std::vector<int64_t>{in, out}
                                                    : std::vector<int64_t>{out, in}};
    for (int part = 0; part < 3; ++part) {
      // queries are cut by heads, keys and values by rows, which may begin and end inside a head
      const int64_t units = part == 0 ? heads : kv * dim, each = part == 0 ? dim : 1;
      const Role weights[] = {Role::QueryWeight, Role::KeyWeight, Role::ValueWeight},
                 biases[] = {Role::QueryBias, Role::KeyBias, Role::ValueBias};
      Param param{.role = vector ? biases[part] : weights[part], .path = "p", .tensor = &tensor};
      param.shape = vector ? std::vector<int64_t>{units * each} : std::vector<int64_t>{units * each, in};
      param.conv1d = conv1d && !vector;
      param.fused = fused;
      param.part = part;
      param.parts = 3;
      param.units = units;
      param.block = part == 0 ? 1 : dim;
      param.group = heads / kv;
      param.blocks = 4;
      param.block_part = (3 - part) % 3;
      for (int64_t begin = 0; begin <= units; ++begin) {
        for (int64_t end = begin; end <= units; ++end) {
          std::vector<Label> got, wanted;
          for (const TensorSlice& piece : tensor_slices(param, {begin, end})) {
            const bool along_columns = vector || conv1d;
            EXPECT_EQ(along_columns ? piece.rows : piece.cols, vector ? 1 : in);
            const int64_t first = along_columns ? piece.col : piece.row,
                          count = along_columns ? piece.cols : piece.rows;
            for (int64_t i = 0; i < count; ++i) got.push_back(rows.at(static_cast<size_t>(first + i)));
          }
          for (int64_t row = begin * each; row < end * each; ++row) wanted.push_back({part, row / dim, row % dim});
          EXPECT_EQ(got, wanted) << "part " << part << " units " << begin << ".." << end;
          EXPECT_EQ(local_shape(param, {begin, end})[0], (end - begin) * each);
        }
      }
    }
  }
}

TEST_P(FusedPieces, OfRowsInsideOneHeadAreOnePiece) {
  const auto [fused, heads, kv, dim, conv1d] = GetParam();
  const int64_t out = (heads + 2 * kv) * dim;
  checkpoint::TensorInfo tensor{.shape = conv1d ? std::vector<int64_t>{6, out} : std::vector<int64_t>{out, 6}};
  Param param{.role = Role::ValueWeight,
              .path = "p",
              .tensor = &tensor,
              .shape = {kv * dim, 6},
              .conv1d = conv1d,
              .fused = fused,
              .part = 2,
              .parts = 3};
  param.units = kv * dim, param.block = dim, param.group = heads / kv, param.blocks = 4, param.block_part = 1;
  EXPECT_EQ(tensor_slices(param, {(kv - 1) * dim + 1, kv * dim}).size(), 1u);
  EXPECT_TRUE(tensor_slices(param, {dim - 1, dim - 1}).empty());
}

INSTANTIATE_TEST_SUITE_P(Table, FusedPieces,
                         testing::Values(Shape{Fused::Concat, 5, 5, 4, true},
                                         Shape{Fused::Concat, 7, 7, 3, false},  // GPT-2's Conv1D
                                         Shape{Fused::PerHead, 5, 5, 4, false},
                                         Shape{Fused::PerHead, 1, 1, 8, false},  // BLOOM, GPT-NeoX
                                         Shape{Fused::Grouped, 10, 2, 3, false},
                                         Shape{Fused::Grouped, 71, 1, 2, false},  // Falcon's new decoder, Falcon 7B
                                         Shape{Fused::Grouped, 6, 6, 2, false}, Shape{Fused::Blocks, 8, 8, 3, false},
                                         Shape{Fused::Blocks, 4, 4, 2, true},  // CodeGen
                                         Shape{Fused::PerHead, 4, 4, 3, true}, Shape{Fused::Grouped, 6, 2, 3, true}));

TEST(Pieces, NeighbouringUnitsAreOnePiece) {
  checkpoint::TensorInfo tensor{.shape = {15, 45}};
  Param param{.role = Role::QueryWeight,
              .tensor = &tensor,
              .shape = {15, 15},
              .conv1d = true,
              .fused = Fused::Concat,
              .part = 0,
              .parts = 3,
              .units = 5};
  EXPECT_EQ(tensor_slices(param, {1, 4}).size(), 1u);
}

TEST(Pieces, RowCutsTakeColumnsOrRowsAsTheStorageGoes) {
  checkpoint::TensorInfo plain{.shape = {8, 12}}, turned{.shape = {12, 8}};
  Param param{.role = Role::DownWeight, .tensor = &plain, .shape = {8, 12}, .units = 12};
  ASSERT_EQ(tensor_slices(param, {3, 7}).size(), 1u);
  TensorSlice piece = tensor_slices(param, {3, 7})[0];
  EXPECT_EQ((std::vector<int64_t>{piece.row, piece.rows, piece.col, piece.cols}), (std::vector<int64_t>{0, 8, 3, 4}));
  param.conv1d = true;
  param.tensor = &turned;
  piece = tensor_slices(param, {3, 7})[0];
  EXPECT_EQ((std::vector<int64_t>{piece.row, piece.rows, piece.col, piece.cols}), (std::vector<int64_t>{3, 4, 0, 8}));
  EXPECT_EQ(local_shape(param, {3, 7}), (std::vector<int64_t>{8, 4}));
}

TEST(Pieces, ABlockDiagonalMatrixIsCutWhereverItsBlocksEnd) {
  // 12 inputs and 8 outputs in 4 blocks: a convolution [8, 3, 1], of which a block has 2 rows of 3
  checkpoint::TensorInfo stored{.shape = {8, 3, 1}};
  const Param by_inputs{
      .role = Role::DownWeight, .tensor = &stored, .shape = {2, 12}, .units = 12, .diagonal_blocks = 4};
  std::vector<std::vector<int64_t>> found;
  for (const TensorSlice& piece : tensor_slices(by_inputs, {2, 7}))
    found.push_back({piece.row, piece.rows, piece.col, piece.cols});
  EXPECT_EQ(found, (std::vector<std::vector<int64_t>>{{0, 2, 2, 1}, {2, 2, 0, 3}, {4, 2, 0, 1}}));
  EXPECT_EQ(local_shape(by_inputs, {2, 7}), (std::vector<int64_t>{2, 5}));
  EXPECT_EQ(stored_shape(by_inputs), (std::vector<int64_t>{8, 3}));
  EXPECT_TRUE(is_block_diagonal_by_inputs(by_inputs));
  const Param by_outputs{.role = Role::UpWeight, .tensor = &stored, .shape = {8, 3}, .units = 8, .diagonal_blocks = 4};
  const TensorSlice rows = tensor_slices(by_outputs, {3, 8}).at(0);
  EXPECT_EQ((std::vector<int64_t>{rows.row, rows.rows, rows.col, rows.cols}), (std::vector<int64_t>{3, 5, 0, 3}));
  EXPECT_FALSE(is_block_diagonal_by_inputs(by_outputs));
}

TEST(Pieces, TransposedBlocksAreReadAsOneMatrixOfAllInputs) {
  checkpoint::TensorInfo tensor{.shape = {3, 4, 6}};  // three blocks of four inputs and six outputs
  Param up{.role = Role::UpWeight, .tensor = &tensor, .shape = {18, 4}, .conv1d = true, .units = 18};
  up.diagonal_blocks = 3;
  EXPECT_EQ(stored_shape(up), (std::vector<int64_t>{12, 6}));
  const std::vector<TensorSlice> outputs = tensor_slices(up, {4, 13});
  ASSERT_EQ(outputs.size(), 3U) << "the end of a block, a block, the beginning of one";
  EXPECT_EQ((std::vector{outputs[0].row, outputs[0].rows, outputs[0].col, outputs[0].cols}),
            (std::vector<int64_t>{0, 4, 4, 2}));
  EXPECT_EQ((std::vector{outputs[1].row, outputs[1].rows, outputs[1].col, outputs[1].cols}),
            (std::vector<int64_t>{4, 4, 0, 6}));
  EXPECT_EQ((std::vector{outputs[2].row, outputs[2].rows, outputs[2].col, outputs[2].cols}),
            (std::vector<int64_t>{8, 4, 0, 1}));
  Param down{.role = Role::DownWeight, .tensor = &tensor, .shape = {6, 12}, .conv1d = true, .units = 12};
  down.diagonal_blocks = 3;
  const std::vector<TensorSlice> inputs = tensor_slices(down, {3, 9});
  ASSERT_EQ(inputs.size(), 1U) << "inputs of all blocks are rows below each other";
  EXPECT_EQ((std::vector{inputs[0].row, inputs[0].rows, inputs[0].col, inputs[0].cols}),
            (std::vector<int64_t>{3, 6, 0, 6}));
}

TEST(Pieces, SegmentsGiveTheirPartOfEachHead) {
  checkpoint::TensorInfo tensor{.shape = {7, 24}};  // three heads of four, twice
  Param out{.role = Role::OutWeight, .tensor = &tensor, .shape = {7, 24}, .units = 3};
  out.segments = 2;
  const std::vector<TensorSlice> own = tensor_slices(out, {1, 3});
  ASSERT_EQ(own.size(), 2U);
  EXPECT_EQ((std::vector{own[0].col, own[0].cols, own[1].col, own[1].cols}), (std::vector<int64_t>{4, 8, 16, 8}));
  EXPECT_EQ(tensor_slices(out, {0, 3}).size(), 1U) << "all of it is one piece";
  EXPECT_EQ(local_shape(out, {1, 3}), (std::vector<int64_t>{7, 16}));
  EXPECT_EQ(scale_group(out), 4) << "of int8: a head of one segment";
}

TEST(Pieces, SegmentsOfOutputsGiveARowOfEachHeadForEachBucket) {
  checkpoint::TensorInfo matrix{.shape = {12, 7}}, vector{.shape = {12}};  // three heads for each of four buckets
  Param weight{.role = Role::BucketWeight, .tensor = &matrix, .shape = {12, 7}, .units = 3};
  Param bias{.role = Role::BucketBias, .tensor = &vector, .shape = {12}, .units = 3};
  weight.segments = bias.segments = 4;
  std::vector<int64_t> rows, columns;
  for (const TensorSlice& own : tensor_slices(weight, {1, 3})) {
    rows.insert(rows.end(), {own.row, own.rows});
    EXPECT_EQ(own.cols, 7);
  }
  EXPECT_EQ(rows, (std::vector<int64_t>{1, 2, 4, 2, 7, 2, 10, 2}));
  for (const TensorSlice& own : tensor_slices(bias, {0, 1})) columns.insert(columns.end(), {own.col, own.cols});
  EXPECT_EQ(columns, (std::vector<int64_t>{0, 1, 3, 1, 6, 1, 9, 1}));
  EXPECT_EQ(tensor_slices(weight, {0, 3}).size(), 1U) << "all of it is one piece";
  EXPECT_EQ(local_shape(weight, {1, 3}), (std::vector<int64_t>{8, 7}));
}

TEST(Pieces, OnesAreLeftOutAtTheBeginningBeforeTheEnd) {
  EXPECT_EQ(without_ones({1, 5, 1}, 2), (std::vector<int64_t>{5, 1}));
  EXPECT_EQ(without_ones({5, 4, 1}, 2), (std::vector<int64_t>{5, 4}));
  EXPECT_EQ(without_ones({5, 1, 4}, 2), (std::vector<int64_t>{5, 1, 4}));
  EXPECT_EQ(without_ones({1, 1}, 2), (std::vector<int64_t>{1, 1}));
}

TEST(Pieces, LastAxesAreOneWhereAParameterHasFewer) {
  EXPECT_EQ(with_last_axes_merged({6, 5, 4}, 2), (std::vector<int64_t>{6, 20}));
  EXPECT_EQ(with_last_axes_merged({6, 5}, 2), (std::vector<int64_t>{6, 5}));
  EXPECT_EQ(with_last_axes_merged({5, 4}, 1), (std::vector<int64_t>{20}));
  checkpoint::TensorInfo stored{.shape = {6, 5, 4}};  // [hidden, heads, head_dim]
  const Param query{.role = Role::QueryWeight, .tensor = &stored, .shape = {20, 6}, .conv1d = true, .units = 5};
  const TensorSlice two_heads = tensor_slices(query, {1, 3}).at(0);
  EXPECT_EQ((std::vector<int64_t>{two_heads.row, two_heads.rows, two_heads.col, two_heads.cols}),
            (std::vector<int64_t>{0, 6, 4, 8}));
}

TEST(Pieces, BucketTablesGiveTheColumnsOfTheirHeads) {
  checkpoint::TensorInfo tensor{.shape = {32, 5}};
  const Param param{.role = Role::RelativePositionBias, .tensor = &tensor, .shape = {32, 5}, .units = 5};
  const TensorSlice piece = tensor_slices(param, {3, 5}).at(0);
  EXPECT_EQ((std::vector<int64_t>{piece.row, piece.rows, piece.col, piece.cols}), (std::vector<int64_t>{0, 32, 3, 2}));
}

TEST(Pieces, WholeParametersComeWhole) {
  checkpoint::TensorInfo tensor{.shape = {20, 3, 8, 8}};
  const Param param{.role = Role::PatchProjection, .tensor = &tensor, .shape = {20, 3, 8, 8}};
  const TensorSlice piece = tensor_slices(param, {0, 1}).at(0);
  EXPECT_EQ((std::vector<int64_t>{piece.row, piece.rows, piece.col, piece.cols}),
            (std::vector<int64_t>{0, 20, 0, 192}));
}

TEST(Pieces, UnitsThatThereAreNotAreAMistake) {
  checkpoint::TensorInfo tensor{.shape = {8, 12}};
  const Param param{.role = Role::DownWeight, .path = "p", .tensor = &tensor, .shape = {8, 12}, .units = 12};
  EXPECT_THROW(tensor_slices(param, {0, 13}), std::out_of_range);
  EXPECT_THROW(tensor_slices(param, {-1, 3}), std::out_of_range);
}

TEST(RangeOf, RowsOfAKvHeadAreSharedOutAmongTheRanksWhoseHeadsUseIt) {
  ModelMetadata metadata;
  metadata.stacks.push_back(
      {.name = "decoder", .layers = 1, .hidden = 8, .heads = 8, .kv_heads = 2, .head_dim = 3, .ffn = 64, .vocab = 0});
  metadata.parts = {{"decoder", 0, 1, Axis::Heads, 8, 10, DType::F32},
                    {"decoder", 0, 1, Axis::KvRows, 6, 10, DType::F32}};
  const Partition partition = make_partition(metadata, 4, DType::F32);
  checkpoint::TensorInfo tensor{.shape = {6, 8}};
  const Param key{.role = Role::KeyWeight,
                  .path = "k",
                  .stack = "decoder",
                  .tensor = &tensor,
                  .shape = {6, 8},
                  .units = 6,
                  .block = 3};
  EXPECT_EQ(rank_range(key, partition, 0), (Range{0, 2}));
  EXPECT_EQ(rank_range(key, partition, 1), (Range{2, 3}));
  EXPECT_EQ(rank_range(key, partition, 2), (Range{3, 5}));
  EXPECT_EQ(rank_range(key, partition, 3), (Range{5, 6}));
}

}  // namespace
}  // namespace pm::policy
