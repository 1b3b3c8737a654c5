// SPDX-License-Identifier: Apache-2.0
// Requests to a stack that pools rows: the rows of its hidden states, and padding of which nothing is left.
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

/// Three layers, of which the second pools, and the third reads all tokens again where it upsamples.
policy::Model pooling_model(bool upsamples) {
  policy::Model made = model();
  policy::Stack& stack = made.stacks[0];
  stack.layers.resize(3);
  stack.layers[1].pooling.emplace();
  if (upsamples) stack.layers[2].upsampling = policy::Upsampling{.stride = 2, .added_layer = 1};
  return made;
}

/// Two rows of five columns; `padding` columns of the second row are none, at its end or its beginning.
Arrays request(int64_t padding, bool left = false) {
  std::vector<int64_t> mask(10, 1);
  for (int64_t i = 0; i < padding; ++i) mask[static_cast<size_t>(left ? 5 + i : 9 - i)] = 0;
  return {{"input_ids", {{2, 5}, std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}}},
          {"attention_mask", {{2, 5}, mask}}};
}

TEST(PooledRows, AreFewerInLaterHiddenStates) {
  const models::Inputs inputs = make_inputs(pooling_model(false), request(2));
  EXPECT_EQ(inputs.stack_inputs.at("encoder").batch_rows(), 10) << "padding too";
  for (const auto& [state, length] : {std::pair{0, 5}, {1, 5}, {2, 3}, {3, 3}}) {
    EXPECT_EQ(inputs.rows_of("encoder", state).length, length) << state;
    EXPECT_EQ(inputs.rows_of("encoder", state).batch_rows(), 2 * length) << state;
  }
  EXPECT_EQ(inputs.rows_of("encoder").length, 3);
  const ops::SequenceSpan& second = inputs.rows_of("encoder").batch.sequences.spans[1];
  EXPECT_EQ(second.keys, 1) << "the third token is beside padding";
  EXPECT_EQ(second.key_row, 3);
}

TEST(PooledRows, AreAllTokensBehindAnUpsampling) {
  const models::Inputs inputs = make_inputs(pooling_model(true), request(2));
  for (const auto& [state, length] : {std::pair{1, 5}, {2, 3}, {3, 5}, {4, 5}})
    EXPECT_EQ(inputs.rows_of("encoder", state).length, length) << state;
  EXPECT_EQ(inputs.rows_of("encoder").batch.sequences.spans[1].keys, 3);
}

TEST(PooledRows, AreRefusedWhereNoTokenIsLeft) {
  const auto refused = [](int64_t padding, bool left) {
    try {
      make_inputs(pooling_model(false), request(padding, left));
    } catch (const Error& error) {
      EXPECT_EQ(error.reason, Reason::InvalidRequest);
      return std::string(error.what());
    }
    return std::string("taken");
  };
  EXPECT_THAT(refused(4, false), HasSubstr("row 1 of attention_mask leaves no token"));
  EXPECT_EQ(refused(4, true), "taken") << "the last column stands alone";
  EXPECT_EQ(refused(3, false), "taken");
}

}  // namespace
}  // namespace pm::test
