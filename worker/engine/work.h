// A request under way: its sequences, and where their keys and values are.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "worker/engine/blocks.h"
#include "worker/engine/request.h"
#include "worker/engine/search.h"

namespace pm::engine {

using Time = std::chrono::steady_clock::time_point;
using Listener = std::shared_ptr<const std::function<void(const Event&)>>;

/// One sequence. What is not computed yet is the rest of its prompt, the last token, or after a preemption all of it: there is no difference.
struct Branch {
  int64_t number = 0;                    ///< of the request's sequences, or which beam
  int32_t slot = -1;
  std::vector<int32_t> tokens;           ///< prompt and answer
  std::vector<int32_t> blocks;           ///< its table
  int64_t computed = 0;                  ///< tokens whose keys and values are in the blocks, or will be when what is under way has run
  int64_t after = 0;                     ///< tokens that its request's first branch has to have computed before this one runs: the blocks are shared
  int64_t told = 0;                      ///< blocks that the ranks' table of the slot has
  bool anew = true;                      ///< the ranks' table of the slot is another's
  int64_t published = 0;                 ///< blocks that the pool knows the tokens of
  BlockPool::Place place = 0;            ///< of the last of them

  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
  int64_t left() const { return length() - computed; }
};

struct Work {
  Request request;                       ///< of an encoder-decoder the prompt is the answer's start; the sampling is complete
  Listener on_event;
  std::vector<int32_t> source;           ///< encoder-decoder: what the encoder reads
  std::vector<int32_t> source_blocks;
  bool source_read = false;
  std::vector<Branch> branches;          ///< one until the prompt is computed
  std::vector<int32_t> spare_slots;      ///< for branches to come
  std::optional<BeamSearch> search;
  std::vector<bool> ended;               ///< of each sequence that is given
  Time submitted, admitted;
  int64_t cached = -1;                   ///< tokens of the prompt that were found in kept blocks; -1 before admission
  bool announced = false;                ///< its first event has gone out
  bool cancelled = false;
  int64_t under_way = 0;                 ///< entries of messages whose results have not come
  bool gone = false;                     ///< it has ended; what is under way is for nobody

  /// Sequences that run side by side once the prompt is computed.
  int64_t width() const { return std::max(request.search.num_beams, request.search.num_return_sequences); }
  int64_t prompt() const { return static_cast<int64_t>(request.prompt.size()); }
  int64_t generated(const Branch& branch) const { return branch.length() - prompt(); }
  bool reads_source() const { return !source.empty(); }
  /// Whether the branch has one token left, so that it takes part in a step with one row.
  bool ready(const Branch& branch) const;
  bool all_ready() const;
  bool done() const;
};

/// KV blocks that a request needs at most: whole blocks of a causal prompt are shared by its sequences, all else is not.
int64_t most_blocks(int64_t prompt, int64_t max_new_tokens, int64_t source, int64_t width);

}  // namespace pm::engine
