// SPDX-License-Identifier: Apache-2.0
// Rows of stacks whose tokens read their neighbors: padding has rows too, and is no key of attention.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/models/models.h"
#include "worker/base/error.h"
#include "worker/models/inputs.h"

namespace pm::test {
namespace {

using models::make_inputs;
using testing::HasSubstr;

policy::Model neighborly(bool trigram) {
  policy::Model made = model();
  made.stacks[0].input.positions.emplace().shape = {32, 8};
  made.stacks[0].input.trigram = trigram;
  return made;
}

Arrays padded(std::vector<int64_t> mask) {
  return {{"input_ids", Array{{2, 4}, std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8}}},
          {"attention_mask", Array{{2, 4}, std::move(mask)}}};
}

TEST(Padding, HasRowsThatAttentionDoesNotSee) {
  const models::Inputs inputs = make_inputs(neighborly(true), padded({0, 0, 1, 1, 1, 1, 1, 0}));
  const models::StackInput& encoder = inputs.stack_inputs.at("encoder");
  EXPECT_EQ(encoder.batch.tokens.numel(), 8);
  const std::vector<ops::SequenceSpan>& spans = encoder.batch.sequences.spans;
  EXPECT_EQ(spans[0].tokens, 4);
  EXPECT_EQ(spans[0].key_row, 2);
  EXPECT_EQ(spans[0].keys, 2);
  EXPECT_EQ(spans[1].first, 4);
  EXPECT_EQ(spans[1].key_row, 4);
  EXPECT_EQ(spans[1].keys, 3);
  const at::Tensor shown = encoder.padded({at::ones({1, 4, 2}), at::ones({1, 4, 3})}, encoder);
  EXPECT_EQ(shown[0][0][0].nonzero().squeeze(1)[0].item<int64_t>(), 2) << "keys stand in their own columns";
}

/// A decoder with two streams; a table of `rows` positions.
policy::Model streaming(bool swapped, int64_t rows) {
  policy::Model made = model();
  policy::Stack& stack = made.stacks[0];
  stack.input.positions.emplace().shape = {rows, 8};
  stack.input.streams.emplace().shape = {2, 8};
  stack.layers[0].attention.mask = policy::Mask::Causal;
  stack.layers[0].attention.content_buckets.emplace().swapped_in_streams = swapped;
  return made;
}

std::string refusal_of(const policy::Model& model, std::vector<int64_t> mask) {
  try {
    make_inputs(model, padded(std::move(mask)));
  } catch (const Error& error) {
    EXPECT_EQ(error.reason, Reason::InvalidRequest);
    return error.what();
  }
  return "served";
}

TEST(Padding, HasRowsWhereStreamsTakeTheBiasesOfOthers) {
  const policy::Model swapped = streaming(true, 9);
  EXPECT_EQ(make_inputs(swapped, padded({0, 0, 1, 1, 1, 1, 1, 0})).stack_inputs.at("encoder").batch.tokens.numel(), 8);
  EXPECT_THAT(refusal_of(swapped, {1, 1, 1, 1, 1, 0, 1, 0}), HasSubstr("row 1 of attention_mask has a 0 between ones"));
  const models::Inputs own = make_inputs(streaming(false, 9), padded({0, 0, 1, 1, 1, 0, 1, 0}));
  EXPECT_EQ(own.stack_inputs.at("encoder").batch.tokens.numel(), 4);
  EXPECT_EQ(own.stack_inputs.at("encoder").batch.columns.at(1).columns, (std::vector<int64_t>{0, 2}));
}

TEST(Padding, StreamsNeedAPositionBehindTheLastToken) {
  EXPECT_EQ(refusal_of(streaming(true, 5), {1, 1, 1, 1, 1, 1, 1, 1}), "served");
  EXPECT_THAT(refusal_of(streaming(true, 4), {1, 1, 1, 1, 1, 1, 1, 1}), HasSubstr("position"));
}

TEST(Padding, HasNoRowsWhereNothingReadsIt) {
  const models::Inputs inputs = make_inputs(neighborly(false), padded({0, 0, 1, 1, 1, 0, 1, 0}));
  EXPECT_EQ(inputs.stack_inputs.at("encoder").batch.tokens.numel(), 4);
}

TEST(Padding, StandsBeforeOrBehindATextWhoseTokensReadTheirNeighbors) {
  const auto refusal = [](std::vector<int64_t> mask) -> std::string {
    try {
      make_inputs(neighborly(true), padded(std::move(mask)));
    } catch (const Error& error) {
      EXPECT_EQ(error.reason, Reason::InvalidRequest);
      return error.what();
    }
    return "served";
  };
  EXPECT_THAT(refusal({1, 1, 1, 1, 1, 0, 1, 0}), HasSubstr("row 1 of attention_mask has a 0 between ones"));
  EXPECT_THAT(refusal({0, 0, 0, 0, 1, 1, 1, 1}), HasSubstr("row 0 of attention_mask is all zero"));
}

}  // namespace
}  // namespace pm::test
