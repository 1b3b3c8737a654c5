// SPDX-License-Identifier: Apache-2.0
// The rows that pooling and upsampling make: how many, of which rows before, where they stand and which are keys.
#include "worker/layers/rows/pooling.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pm::layers {
namespace {

using testing::ElementsAre;

std::vector<int64_t> numbers(const at::Tensor& tensor) {
  const at::Tensor whole = tensor.contiguous();
  return {whole.const_data_ptr<int64_t>(), whole.const_data_ptr<int64_t>() + whole.numel()};
}

std::vector<float> values(const at::Tensor& tensor) {
  const at::Tensor whole = tensor.contiguous();
  return {whole.const_data_ptr<float>(), whole.const_data_ptr<float>() + whole.numel()};
}

/// Sequences of these lengths, whose first tokens are no padding.
PooledRows rows_of(const std::vector<int64_t>& lengths, const std::vector<int64_t>& keys) {
  std::vector<ops::SequenceSpan> spans;
  int64_t first = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    spans.push_back(
        {.first = first, .tokens = lengths[i], .context = 0, .keys = keys[i], .key_row = first, .blocks = {}});
    first += lengths[i];
  }
  return PooledRows(spans);
}

TEST(Pooling, MakesOneRowOfTwoBesideEachOther) {
  const RowPairs pairs = pool_rows({}, rows_of({5}, {3}));
  EXPECT_THAT(numbers(pairs.first), ElementsAre(0, 2, 4));
  EXPECT_THAT(numbers(pairs.second), ElementsAre(1, 3, 4)) << "the last stands alone";
  EXPECT_EQ(pairs.rows.spans[0].keys, 1) << "a token beside padding is padding";
  EXPECT_EQ(pairs.rows.columns[0].start, 0);
  EXPECT_EQ(pairs.rows.columns[0].step, 2);
}

TEST(Pooling, LeavesTheFirstRowApartAndDropsTheLastOne) {
  const policy::Pooling apart{.class_apart = true}, truncating{.class_apart = true, .truncate = true};
  EXPECT_THAT(numbers(pool_rows(apart, rows_of({6}, {6})).second), ElementsAre(0, 2, 4, 5));
  const RowPairs pairs = pool_rows(truncating, rows_of({6}, {6}));
  EXPECT_THAT(numbers(pairs.first), ElementsAre(0, 1, 3));
  EXPECT_THAT(numbers(pairs.second), ElementsAre(0, 2, 4));
  EXPECT_EQ(pairs.rows.columns[0].start, -1) << "one step of two before the second row, which stands in column 1";
  const RowPairs again = pool_rows(truncating, pairs.rows);
  EXPECT_THAT(numbers(again.rows.tokens), ElementsAre(0, 1));
  EXPECT_EQ(again.rows.columns[0].start, -3);
  EXPECT_EQ(again.rows.columns[0].step, 4);
}

TEST(Pooling, KeepsTheRowsOfSequencesThatAreTooShort) {
  const RowPairs pairs = pool_rows({.class_apart = true, .truncate = true}, rows_of({2, 5, 1}, {2, 5, 1}));
  EXPECT_THAT(numbers(pairs.first), ElementsAre(0, 1, 2, 3, 5, 7));
  EXPECT_THAT(numbers(pairs.second), ElementsAre(0, 1, 2, 4, 5, 7));
  EXPECT_EQ(pairs.rows.columns[0].step, 1);
  EXPECT_EQ(pairs.rows.step(), 1);
  EXPECT_EQ(pairs.rows.count(), 6);
  EXPECT_EQ(pairs.rows.spans[2].first, 5);
}

TEST(Pooling, LeavesNoKeyOfATokenBetweenPadding) {
  PooledRows rows = rows_of({6}, {1});
  EXPECT_EQ(pool_rows({.class_apart = true}, rows).rows.spans[0].keys, 1) << "the first row";
  rows.spans[0].key_row = 4;
  EXPECT_EQ(pool_rows({.class_apart = true}, rows).rows.spans[0].keys, 0);
  rows.spans[0].keys = 2;
  const ops::SequenceSpan left = pool_rows({.class_apart = true}, rows).rows.spans[0];
  EXPECT_EQ(left.keys, 1) << "the last column alone";
  EXPECT_EQ(left.key_row, 3);
}

TEST(Pooling, TakesTheMeanOrTheLargest) {
  const RowPairs pairs = pool_rows({}, rows_of({3}, {3}));
  const at::Tensor x = at::tensor({1.F, -2.F, 3.F, 6.F, 5.F, 7.F}).reshape({3, 2});
  EXPECT_THAT(values(pool_states(policy::PoolingKind::Mean, pairs, x)), ElementsAre(2, 2, 5, 7));
  EXPECT_THAT(values(pool_states(policy::PoolingKind::Max, pairs, x)), ElementsAre(3, 6, 5, 7));
}

TEST(Upsampling, RepeatsRowsAndFillsUpWithZeros) {
  const PooledRows tokens = rows_of({6, 1}, {6, 1});
  const PooledRows rows = pool_rows({.class_apart = true, .truncate = true}, tokens).rows;
  const at::Tensor x = at::tensor({1.F, 2.F, 3.F, 9.F}).reshape({4, 1});
  EXPECT_THAT(values(upsample_states({.stride = 2, .class_apart = true}, rows, tokens, x)),
              ElementsAre(1, 2, 2, 3, 3, 0, 9));
  EXPECT_THAT(values(upsample_states({.stride = 2}, rows, tokens, x)), ElementsAre(1, 1, 2, 2, 3, 3, 9));
}

TEST(Upsampling, GivesLayersBehindItAllTokens) {
  policy::Stack stack;
  stack.layers.resize(4);
  stack.layers[1].pooling.emplace();
  stack.layers[3].upsampling = policy::Upsampling{.stride = 2, .added_layer = 1};
  const PooledRows tokens = rows_of({5}, {5});
  EXPECT_EQ(rows_before(stack, 1, tokens).count(), 5);
  EXPECT_EQ(rows_before(stack, 2, tokens).count(), 3);
  EXPECT_EQ(rows_before(stack, 3, tokens).count(), 3);
  EXPECT_EQ(rows_before(stack, 4, tokens).count(), 5);
  EXPECT_EQ(policy::hidden_state_of(stack, 2), 2);
  EXPECT_EQ(policy::hidden_state_of(stack, 3), 4) << "behind what came to the layer";
  EXPECT_EQ(policy::hidden_state_of(stack, 4), 5);
}

}  // namespace
}  // namespace pm::layers
