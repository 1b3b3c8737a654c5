// SPDX-License-Identifier: Apache-2.0
// The rank on which a drafter runs a model of its own, with KV blocks and slots that nothing else uses.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "worker/engine/kv/block_pool.h"
#include "worker/engine/protocol/step_output.h"
#include "worker/engine/ranks/rank.h"
#include "worker/engine/speculation/drafter.h"

namespace pm::engine {

/// Tokens that a drafter may read before it drafts without Drafts::read_texts. After a step it is at most two tokens
/// behind: the last draft, and the token after it. After a short pause it is a few behind, and reading them costs about
/// as much as one. If such steps did not count, the cost of drafts would not be learned again once it was taken for too
/// high.
inline constexpr size_t usually_behind = 40;

/// Returns true for a token that ends a sequence with these parameters.
bool is_end(const SamplingParams&, int32_t id);

/// A model of which all is on one rank, and the block tables of the sequences that it computes. Not thread-safe.
class DraftRank {
 public:
  /// The block table of a sequence.
  struct Table {
    int32_t slot = -1;                      ///< of the rank; -1: not opened
    std::vector<int32_t> blocks;            ///< block table
    size_t sent_blocks = 0;                 ///< that the rank knows
    size_t cached_blocks = 0;               ///< leading blocks that are in the prefix cache
    BlockPool::PrefixNode prefix_node = 0;  ///< of the last of them
  };

  DraftRank(std::unique_ptr<Rank> rank, int64_t vocabulary, int64_t kv_blocks)
      : rank_(std::move(rank)), vocabulary_(vocabulary), pool_(kv_blocks) {}
  /// Gives the table a slot.
  void open(Table&);
  /// Takes slot and blocks away.
  void close(Table&);
  /// Begins the table again, with the blocks of the longest cached prefix of the tokens.
  void begin(Table&, std::span<const int32_t> tokens);
  /// Begins the table again, without blocks.
  void clear(Table&);
  /// Enters the full blocks of the first `computed` tokens into the prefix cache.
  void cache_blocks(Table&, std::span<const int32_t> tokens, size_t computed);
  /// Adds blocks until the table has room for so many tokens. Returns false when there are none.
  bool grow(Table&, int64_t tokens);
  /// Lets `child`, which has a slot and no blocks, begin as a copy of the first `computed` tokens of `parent`. Returns
  /// false when there is no block for the last ones, which both go on from.
  bool fork(const Table& parent, Table& child, size_t computed);

  /// Adds an entry that computes these tokens behind the first `context` ones of the table.
  void add_entry(Table&, size_t context, std::span<const int32_t> tokens, StepMessage&) const;
  /// Has the last entry draw the token behind `text`, with the parameters, the history and the random number that the
  /// model draws it with, so that equal scores give equal tokens. `text` has to outlive run().
  void want_token(const DraftRequest&, std::span<const int32_t> text, StepMessage&, std::vector<SamplingInput>&) const;
  /// Runs the step and returns what it computed; `states` as of Rank::run().
  StepOutput run(StepMessage&, const at::Tensor& states = {});
  Rank& rank() { return *rank_; }

 private:
  const std::unique_ptr<Rank> rank_;
  const int64_t vocabulary_;
  BlockPool pool_;
  std::vector<int32_t> free_slots_, freed_slots_;
  std::vector<int32_t> block_copies_;  ///< for the next step
  int32_t slots_ = 0;                  ///< that were ever used
  int64_t steps_ = 0;
};

}  // namespace pm::engine
