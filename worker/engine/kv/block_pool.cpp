// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/kv/block_pool.h"

#include <algorithm>
#include <stdexcept>

namespace pm::engine {

BlockPool::BlockPool(int64_t blocks) : blocks_(static_cast<size_t>(blocks)) {
  for (int64_t i = blocks; i-- > 0;) free_.push_back(static_cast<int32_t>(i));
}

std::optional<int32_t> BlockPool::allocate() {
  int32_t taken = 0;
  if (!free_.empty()) {
    taken = free_.back();
    free_.pop_back();
  } else if (!evictable_.empty()) {
    taken = evictable_.front();
    evictable_.pop_front();
    cached_.erase(blocks_[static_cast<size_t>(taken)].key);
  } else {
    return std::nullopt;
  }
  Block& block = blocks_[static_cast<size_t>(taken)];
  block.references = 1;
  block.node = 0;
  return taken;
}

void BlockPool::retain(int32_t index) {
  Block& block = blocks_.at(static_cast<size_t>(index));
  if (block.references++ > 0) return;
  if (block.node == 0) throw std::logic_error("block " + std::to_string(index) + " is free and cannot be retained");
  evictable_.erase(block.evictable);
}

void BlockPool::release(int32_t index) {
  Block& block = blocks_.at(static_cast<size_t>(index));
  if (block.references <= 0) throw std::logic_error("block " + std::to_string(index) + " has no reference to release");
  if (--block.references > 0) return;
  if (block.node != 0)
    block.evictable = evictable_.insert(evictable_.end(), index);
  else
    free_.push_back(index);
}

void BlockPool::release(std::span<const int32_t> table) {
  for (size_t i = table.size(); i-- > 0;) release(table[i]);
}

BlockPool::Prefix BlockPool::find_prefix(std::span<const int32_t> tokens, PrefixNode root) {
  Prefix prefix{.blocks = {}, .end = root};
  constexpr auto width = static_cast<size_t>(block_tokens);
  for (size_t at = 0; at + width < tokens.size(); at += width) {
    const auto found = cached_.find(key_of(prefix.end, tokens.subspan(at, width)));
    if (found == cached_.end()) break;
    retain(found->second);
    prefix.blocks.push_back(found->second);
    prefix.end = blocks_[static_cast<size_t>(found->second)].node;
  }
  return prefix;
}

BlockPool::PrefixNode BlockPool::cache_block(int32_t index, PrefixNode parent, std::span<const int32_t> tokens) {
  const Key key = key_of(parent, tokens);
  const auto [entry, fresh] = cached_.try_emplace(key, index);
  if (!fresh) return blocks_[static_cast<size_t>(entry->second)].node;
  Block& block = blocks_.at(static_cast<size_t>(index));
  if (block.references <= 0 || block.node != 0)
    throw std::logic_error("block " + std::to_string(index) + " has no reference or is cached already");
  block.key = key;
  block.node = ++last_node_;
  return block.node;
}

BlockPool::Key BlockPool::key_of(PrefixNode parent, std::span<const int32_t> tokens) {
  Key key{parent, {}};
  std::copy_n(tokens.begin(), block_tokens, key.tokens.begin());
  return key;
}

size_t BlockPool::Hash::operator()(const Key& key) const {
  uint64_t hash = static_cast<uint64_t>(key.parent) *
                  0x9E3779B97F4A7C15u;  // FNV-like mixing of words; equality of keys is tested separately
  for (const int32_t token : key.tokens)
    hash = (hash ^ static_cast<uint32_t>(token)) * 0x100000001B3u, hash ^= hash >> 29;
  return static_cast<size_t>(hash);
}

}  // namespace pm::engine
