// SPDX-License-Identifier: Apache-2.0
// Tests of the KV block pool: reference counts, cached content without references, and the order of eviction.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "worker/engine/kv/block_pool.h"

namespace pm::engine {
namespace {

std::vector<int32_t> tokens_from(int32_t first, size_t count) {
  std::vector<int32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

/// Allocates and caches blocks for all whole blocks of `tokens`.
std::vector<int32_t> hold(BlockPool& pool, const std::vector<int32_t>& tokens) {
  BlockPool::PrefixNode node = 0;
  std::vector<int32_t> table;
  for (size_t at = 0; at + 16 <= tokens.size(); at += 16) {
    table.push_back(pool.allocate().value());
    node = pool.cache_block(table.back(), node, std::span(tokens).subspan(at, 16));
  }
  return table;
}

TEST(BlockPool, AllocatesEachBlockOnceAndNothingWhenAllAreInUse) {
  BlockPool pool(3);
  std::vector<int32_t> taken{*pool.allocate(), *pool.allocate(), *pool.allocate()};
  std::sort(taken.begin(), taken.end());
  EXPECT_EQ(taken, (std::vector<int32_t>{0, 1, 2}));
  EXPECT_FALSE(pool.allocate());
  pool.release(taken[1]);
  EXPECT_EQ(pool.allocate(), 1);
}

TEST(BlockPool, ASharedBlockIsFreedByItsLastOwner) {
  BlockPool pool(1);
  const int32_t block = *pool.allocate();
  pool.retain(block);
  EXPECT_TRUE(pool.shared(block));
  pool.release(block);
  EXPECT_FALSE(pool.shared(block));
  EXPECT_EQ(pool.available(), 0);
  pool.release(block);
  EXPECT_EQ(pool.available(), 1);
  EXPECT_THROW(pool.release(block), std::logic_error);
}

TEST(BlockPool, FindsTheLongestCachedPrefixButNeverTheLastToken) {
  BlockPool pool(8);
  const auto tokens = tokens_from(0, 48);
  const auto table = hold(pool, tokens);
  pool.release(table);
  EXPECT_EQ(pool.available(), 8);
  EXPECT_EQ(pool.find_prefix(tokens_from(0, 60)).blocks, table);
  EXPECT_EQ(pool.find_prefix(tokens).blocks, (std::vector<int32_t>{table[0], table[1]}))
      << "token 47 has to be computed";
  EXPECT_EQ(pool.available(), 5) << "three blocks are held, two of them twice";
  auto other = tokens_from(0, 60);
  other[20] = 7;
  EXPECT_EQ(pool.find_prefix(other).blocks, std::vector<int32_t>{table[0]});
  EXPECT_TRUE(pool.find_prefix(tokens_from(16, 40)).blocks.empty())
      << "the same tokens elsewhere in a sequence have other keys";
}

TEST(BlockPool, ADuplicateBlockIsNotFoundButItsChildrenAre) {
  BlockPool pool(8);
  const auto tokens = tokens_from(0, 32);
  const auto table = hold(pool, tokens);
  const int32_t twin = *pool.allocate(), next = *pool.allocate();
  const auto node = pool.cache_block(twin, 0, std::span(tokens).first(16));
  pool.cache_block(next, node, tokens_from(100, 16));
  auto other = tokens_from(0, 16);
  for (int32_t token : tokens_from(100, 17)) other.push_back(token);
  EXPECT_EQ(pool.find_prefix(other).blocks, (std::vector<int32_t>{table[0], next}));
}

TEST(BlockPool, EvictsTheLeastRecentlyUsedAndTheEndOfASequenceBeforeItsBeginning) {
  BlockPool pool(4);
  const auto first = hold(pool, tokens_from(0, 32)), second = hold(pool, tokens_from(200, 32));
  pool.release(first);
  pool.release(second);
  EXPECT_EQ(pool.allocate(), first[1]);
  EXPECT_EQ(pool.find_prefix(tokens_from(0, 40)).blocks, std::vector<int32_t>{first[0]});
  EXPECT_EQ(pool.allocate(), second[1]) << "the first sequence's beginning was used since";
}

TEST(BlockPool, AThousandRandomOperationsLeakNoBlock) {
  std::mt19937 random(3);
  BlockPool pool(20);
  std::vector<std::vector<int32_t>> held;
  for (int move = 0; move < 1000; ++move) {
    if (held.size() < 6 && random() % 2 == 0) {
      const auto tokens = tokens_from(static_cast<int32_t>(random() % 3), 16 * (1 + random() % 3) + 1);
      BlockPool::Prefix prefix = pool.find_prefix(tokens);
      bool whole = true;
      while (whole && prefix.blocks.size() * 16 + 16 <= tokens.size()) {
        const auto block = pool.allocate();
        if (!(whole = block.has_value())) break;
        prefix.end = pool.cache_block(*block, prefix.end, std::span(tokens).subspan(prefix.blocks.size() * 16, 16));
        prefix.blocks.push_back(*block);
      }
      held.push_back(prefix.blocks);
    } else if (!held.empty()) {
      const size_t which = random() % held.size();
      pool.release(held[which]);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
    }
  }
  for (const auto& table : held) pool.release(table);
  EXPECT_EQ(pool.available(), 20);
}

}  // namespace
}  // namespace pm::engine
