// See blocks.h.
#include "worker/engine/blocks.h"

#include <algorithm>
#include <stdexcept>

namespace pm::engine {

int64_t blocks_for(int64_t tokens) { return (tokens + kv_block_tokens - 1) / kv_block_tokens; }

BlockPool::BlockPool(int64_t blocks) : blocks_(static_cast<size_t>(blocks)) {
  for (int64_t i = blocks; i-- > 0;) free_.push_back(static_cast<int32_t>(i));
}

std::optional<int32_t> BlockPool::take() {
  int32_t taken = 0;
  if (!free_.empty()) {
    taken = free_.back();
    free_.pop_back();
  } else if (!kept_.empty()) {
    taken = kept_.front();
    kept_.pop_front();
    published_.erase(blocks_[static_cast<size_t>(taken)].key);
  } else {
    return std::nullopt;
  }
  Block& block = blocks_[static_cast<size_t>(taken)];
  block.references = 1;
  block.place = 0;
  return taken;
}

void BlockPool::retain(int32_t index) {
  Block& block = blocks_.at(static_cast<size_t>(index));
  if (block.references++ > 0) return;
  if (block.place == 0) throw std::logic_error("block " + std::to_string(index) + " is free and has no content to hold");
  kept_.erase(block.kept);
}

void BlockPool::release(int32_t index) {
  Block& block = blocks_.at(static_cast<size_t>(index));
  if (block.references <= 0) throw std::logic_error("block " + std::to_string(index) + " is released more often than it was held");
  if (--block.references > 0) return;
  if (block.place != 0) block.kept = kept_.insert(kept_.end(), index);
  else free_.push_back(index);
}

void BlockPool::release(std::span<const int32_t> table) {
  for (size_t i = table.size(); i-- > 0;) release(table[i]);
}

BlockPool::Prefix BlockPool::find(std::span<const int32_t> tokens) {
  Prefix prefix;
  constexpr auto width = static_cast<size_t>(kv_block_tokens);
  for (size_t at = 0; at + width < tokens.size(); at += width) {
    const auto found = published_.find(key_of(prefix.end, tokens.subspan(at, width)));
    if (found == published_.end()) break;
    retain(found->second);
    prefix.blocks.push_back(found->second);
    prefix.end = blocks_[static_cast<size_t>(found->second)].place;
  }
  return prefix;
}

BlockPool::Place BlockPool::publish(int32_t index, Place before, std::span<const int32_t> tokens) {
  const Key key = key_of(before, tokens);
  const auto [entry, fresh] = published_.try_emplace(key, index);
  if (!fresh) return blocks_[static_cast<size_t>(entry->second)].place;
  Block& block = blocks_.at(static_cast<size_t>(index));
  if (block.references <= 0 || block.place != 0) throw std::logic_error("block " + std::to_string(index) + " is not held or has content already");
  block.key = key;
  block.place = ++last_place_;
  return block.place;
}

BlockPool::Key BlockPool::key_of(Place before, std::span<const int32_t> tokens) {
  Key key{before, {}};
  std::copy_n(tokens.begin(), kv_block_tokens, key.tokens.begin());
  return key;
}

size_t BlockPool::Hash::operator()(const Key& key) const {
  uint64_t hash = static_cast<uint64_t>(key.before) * 0x9E3779B97F4A7C15u;   // FNV-like over words; equality decides, the hash only spreads
  for (const int32_t token : key.tokens) hash = (hash ^ static_cast<uint32_t>(token)) * 0x100000001B3u, hash ^= hash >> 29;
  return static_cast<size_t>(hash);
}

}  // namespace pm::engine
