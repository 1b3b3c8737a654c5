// SPDX-License-Identifier: Apache-2.0
// The rows of sequences that read a memory: what lies where, and which keys each query may see.
#include "worker/layers/rows/memory_rows.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pm::layers {
namespace {

using testing::ElementsAre;

std::vector<float> values(const at::Tensor& tensor) {
  const at::Tensor whole = tensor.contiguous();
  return {whole.const_data_ptr<float>(), whole.const_data_ptr<float>() + whole.numel()};
}

/// Two sequences, of two tokens and of one, with a memory of three.
MemoryRows rows() {
  return {{{.first = 0, .tokens = 2, .context = 0, .keys = 2, .key_row = 0, .blocks = {}},
           {.first = 2, .tokens = 1, .context = 0, .keys = 1, .key_row = 2, .blocks = {}}},
          3};
}

TEST(MemoryRows, StandBeforeTheTokensOfTheirSequence) {
  const at::Tensor memories = at::arange(6, at::kFloat).unsqueeze(1) + 10,
                   states = at::arange(3, at::kFloat).unsqueeze(1);
  EXPECT_THAT(values(rows().beside(memories, states)), ElementsAre(10, 11, 12, 0, 1, 13, 14, 15, 2));
}

TEST(MemoryRows, AreZeroWithoutAMemory) {
  const at::Tensor all = rows().beside({}, at::ones({3, 1}, at::kBFloat16));
  EXPECT_EQ(all.scalar_type(), at::kBFloat16);
  EXPECT_THAT(values(all.to(at::kFloat)), ElementsAre(0, 0, 0, 1, 1, 0, 0, 0, 1));
}

TEST(MemoryRows, TellWhereQueriesAndKeysStand) {
  const MemoryRows both = rows();
  const std::vector<ops::SequenceSpan>&queries = both.queries().spans, &keys = both.keys().spans;
  EXPECT_EQ(queries[1].first, 2);
  EXPECT_EQ(queries[1].context, 3) << "the first query sees the memory and itself";
  EXPECT_EQ(both.queries().columns[1].start, 3) << "distances to the memory are positive";
  EXPECT_EQ(keys[0].keys, 5);
  EXPECT_EQ(keys[1].key_row, 5);
  EXPECT_EQ(keys[1].keys, 4);
}

}  // namespace
}  // namespace pm::layers
