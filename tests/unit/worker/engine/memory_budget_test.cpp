// SPDX-License-Identifier: Apache-2.0
// Tests how the memory of a device is divided after a warm-up. Numbers are bytes.
#include "worker/engine/ranks/memory_budget.h"

#include <gtest/gtest.h>

namespace pm::engine {
namespace {

/// A device of 1000 with 300 of weights. The largest step peaks at 100 beside them, the allocator at 20 more, and CUDA
/// graphs hold 30 in the allocator and 10 outside it.
WarmUpMemory example() {
  return {
      .before_step = {.total = 1000, .free = 650, .reserved = 300, .allocated = 300},
      .after_step =
          {.total = 1000, .free = 530, .reserved = 420, .allocated = 300, .peak_reserved = 420, .peak_allocated = 400},
      .without_graphs = {.total = 1000, .free = 650, .reserved = 300, .allocated = 300},
      .with_graphs = {.total = 1000, .free = 610, .reserved = 330, .allocated = 305},
      .without_blocks = {.total = 1000, .free = 620, .reserved = 320, .allocated = 300},
      .block_bytes = 10};
}

TEST(MemoryBudget, EveryTermIsWhatTheWarmUpMeasured) {
  const MemoryBudget budget = memory_budget(example(), 900, 50);
  EXPECT_EQ(budget.limit, 900);
  EXPECT_EQ(budget.allocated, 300);
  EXPECT_EQ(budget.activations, 100);
  EXPECT_EQ(budget.fragmentation, 20);
  EXPECT_EQ(budget.graphs, 40);
  EXPECT_EQ(budget.answers, 50);
  EXPECT_EQ(budget.step(), 160);
  EXPECT_EQ(budget.kv(), 440);
  EXPECT_EQ(budget.max_reserved(), 740);
}

TEST(MemoryBudget, TheLimitIsThePlansOrThatOfTheDeviceWhicheverIsLess) {
  EXPECT_EQ(memory_budget(example(), 10'000, 0).limit, 320 + 620);
  WarmUpMemory shared = example();
  shared.ranks_on_device = 2;
  EXPECT_EQ(memory_budget(shared, 10'000, 0).limit, 320 + 310) << "the free memory is shared with another rank";
}

TEST(MemoryBudget, MemoryOutsideTheAllocatorIsOfGraphsOnlyIfNoOtherRankUsesTheDevice) {
  WarmUpMemory shared = example();
  shared.ranks_on_device = 2;
  EXPECT_EQ(memory_budget(shared, 900, 0).graphs, 30);
}

TEST(MemoryBudget, WithoutGraphsOrWithMemoryFreedMeanwhileGraphsHoldNothing) {
  WarmUpMemory memory = example();
  memory.with_graphs = memory.without_graphs;
  EXPECT_EQ(memory_budget(memory, 900, 0).graphs, 0);
  memory.with_graphs = {.total = 1000, .free = 800, .reserved = 150, .allocated = 150};
  EXPECT_EQ(memory_budget(memory, 900, 0).graphs, 0);
}

TEST(MemoryBudget, KvBlocksTakeWhatRemains) {
  const MemoryBudget budget = memory_budget(example(), 900, 0);
  EXPECT_EQ(budget.kv_blocks(5, 1000), 44);
  EXPECT_EQ(budget.kv_blocks(5, 30), 30) << "at most so many";
  EXPECT_EQ(budget.kv_blocks(1000, 2000), 44) << "a promise makes no memory";
}

TEST(MemoryBudget, AnswersStayFreeUnlessPromisedBlocksNeedTheirMemory) {
  const MemoryBudget budget = memory_budget(example(), 900, 200);
  EXPECT_EQ(budget.kv_blocks(5, 1000), 24);
  EXPECT_EQ(budget.kv_blocks(30, 1000), 30);
  EXPECT_EQ(budget.kv_blocks(60, 1000), 44);
  EXPECT_EQ(memory_budget(example(), 900, 5000).kv_blocks(5, 1000), 5);
}

TEST(MemoryBudget, TooLittleMemoryLeavesNoBlocks) {
  const MemoryBudget budget = memory_budget(example(), 400, 0);
  EXPECT_EQ(budget.kv(), 0);
  EXPECT_EQ(budget.kv_blocks(5, 1000), 0);
  EXPECT_EQ(budget.max_reserved(), 240);
}

TEST(MemoryBudget, ARankWithoutCachedLayersTakesAnyNumberOfBlocks) {
  WarmUpMemory memory = example();
  memory.block_bytes = 0;
  EXPECT_EQ(memory_budget(memory, 400, 0).kv_blocks(5, 1000), 1000);
}

}  // namespace
}  // namespace pm::engine
