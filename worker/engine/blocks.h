// The pool of KV blocks: who holds which, and which full ones can be used again because another sequence begins with the same tokens.
#pragma once
#include <array>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "worker/engine/request.h"

namespace pm::engine {

/// Tokens of one block; ops::block_tokens, here without torch.
inline constexpr int64_t kv_block_tokens = 16;

/// Blocks that `tokens` tokens need.
int64_t blocks_for(int64_t tokens);

/// Counts references to blocks. A block that holds 16 known tokens can be published under what precedes it; released, it keeps its content until
/// the room is needed, oldest first. Not thread-safe.
class BlockPool {
 public:
  explicit BlockPool(int64_t blocks);

  /// A block of unknown content with one reference; nothing when all are held.
  std::optional<int32_t> take();
  void retain(int32_t block);
  void release(int32_t block);
  /// Releases a whole table, its end first, so that what begins sequences is kept longest.
  void release(std::span<const int32_t> table);
  /// Whether others hold it too, so that it must not be written to.
  bool shared(int32_t block) const { return blocks_[static_cast<size_t>(block)].references > 1; }

  /// The place of a published block: what precedes it is part of it. 0: the beginning of a sequence.
  using Place = int64_t;
  struct Prefix {
    std::vector<int32_t> blocks;   ///< each with a reference for the caller
    Place end = 0;                 ///< of the last one
  };
  /// The longest published beginning of `tokens` in whole blocks, at most `tokens` - 1 tokens: the last one has to be computed.
  Prefix find(std::span<const int32_t> tokens);
  /// Says that `block` holds these 16 tokens after `before`. Where another block is there already, that one's place is given.
  Place publish(int32_t block, Place before, std::span<const int32_t> tokens);

  int64_t size() const { return static_cast<int64_t>(blocks_.size()); }
  /// What take() can give, published ones that nobody holds included.
  int64_t available() const { return static_cast<int64_t>(free_.size() + kept_.size()); }

 private:
  struct Key {
    Place before = 0;
    std::array<int32_t, kv_block_tokens> tokens{};
    bool operator==(const Key&) const = default;
  };
  struct Hash { size_t operator()(const Key&) const; };
  struct Block {
    int64_t references = 0;
    Place place = 0;                          ///< 0: not published
    Key key;
    std::list<int32_t>::iterator kept;        ///< valid while published and held by nobody
  };
  static Key key_of(Place before, std::span<const int32_t> tokens);

  std::vector<Block> blocks_;
  std::vector<int32_t> free_;
  std::list<int32_t> kept_;                   ///< published and held by nobody, the longest unused first
  std::unordered_map<Key, int32_t, Hash> published_;
  Place last_place_ = 0;                      ///< places are never given twice
};

}  // namespace pm::engine
