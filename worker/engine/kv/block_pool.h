// SPDX-License-Identifier: Apache-2.0
// The pool of KV blocks with reference counts and the prefix cache: full blocks are shared by sequences with equal
// token prefixes.
#pragma once
#include <array>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "contract/kv_block.h"
#include "worker/engine/engine.h"

namespace pm::engine {

/// Allocates KV blocks and counts their references. A full block can be entered into the prefix cache under the tokens
/// that precede it. When it is released it keeps its content until its memory is needed; the least recently used block
/// is evicted first. Not thread-safe.
class BlockPool {
 public:
  explicit BlockPool(int64_t blocks);

  /// Allocates a block with undefined content and one reference; returns nothing if no block is available.
  std::optional<int32_t> allocate();
  /// Adds a reference to a block in use or to a cached block.
  void retain(int32_t block);
  /// Removes a reference. Without references the block becomes free, or evictable if it is cached.
  void release(int32_t block);
  /// Releases a whole block table from its end, so that the beginnings of sequences stay cached longest.
  void release(std::span<const int32_t> table);
  /// Returns true if the block has several owners and must not be written to.
  bool shared(int32_t block) const { return blocks_[static_cast<size_t>(block)].references > 1; }

  /// Id of a node of the prefix tree. It identifies a cached block together with all tokens before it; 0 is the root.
  using PrefixNode = int64_t;
  /// Returns the root of the prefixes of an adapter (0: the base model), or of those whose keys are rotated as those
  /// of long sequences (LongRoPE): their keys and values are others for equal tokens.
  static constexpr PrefixNode root(int64_t adapter, bool long_rope) { return -(2 * adapter + (long_rope ? 1 : 0)); }
  struct Prefix {
    std::vector<int32_t> blocks;  ///< the caller owns one reference to each
    PrefixNode end = 0;           ///< node of the last block
  };
  /// Finds the longest cached prefix of `tokens` in whole blocks. The prefix has at most `tokens` - 1 tokens, because
  /// the last token must be computed.
  Prefix find_prefix(std::span<const int32_t> tokens, PrefixNode root = 0);
  /// Enters `block` into the prefix cache as the child of `parent` with these 16 tokens. If an equal block is cached
  /// already, returns that block's node.
  PrefixNode cache_block(int32_t block, PrefixNode parent, std::span<const int32_t> tokens);

  int64_t size() const { return static_cast<int64_t>(blocks_.size()); }
  /// Number of blocks that allocate() can return, including cached blocks without references.
  int64_t available() const { return static_cast<int64_t>(free_.size() + evictable_.size()); }

 private:
  struct Key {
    PrefixNode parent = 0;
    std::array<int32_t, block_tokens> tokens{};
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key&) const;
  };
  struct Block {
    int64_t references = 0;
    PrefixNode node = 0;  ///< 0: not cached
    Key key;
    std::list<int32_t>::iterator evictable;  ///< valid while the block is cached without references
  };
  static Key key_of(PrefixNode parent, std::span<const int32_t> tokens);

  std::vector<Block> blocks_;
  std::vector<int32_t> free_;
  std::list<int32_t> evictable_;  ///< cached blocks without references, least recently used first
  std::unordered_map<Key, int32_t, Hash> cached_;
  PrefixNode last_node_ = 0;  ///< node ids are never reused
};

}  // namespace pm::engine
