// SPDX-License-Identifier: Apache-2.0
// A request that the engine runs: its sequences, their KV block tables and their slots.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "worker/engine/engine.h"
#include "worker/engine/kv/block_pool.h"
#include "worker/engine/sampling/beam_search.h"
#include "worker/engine/speculation/draft_length.h"

namespace pm::engine {

using Time = std::chrono::steady_clock::time_point;
using Listener = std::shared_ptr<const std::function<void(const Event&)>>;

/// One sequence of a request. Its tokens beyond `computed` are the rest of the prompt, the last sampled token, or after
/// a preemption all tokens.
struct Sequence {
  int64_t number = 0;  ///< index among the request's sequences, or of the beam
  int64_t source = 0;  ///< index of the encoder's input that it attends to
  int32_t slot = -1;
  std::vector<int32_t> tokens;  ///< prompt and answer
  std::vector<int32_t> blocks;  ///< block table
  /// Tokens whose keys and values are in the blocks, or will be once the steps in flight have run.
  int64_t computed = 0;
  int64_t shared_tokens = 0;  ///< leading tokens in blocks shared with the request's first sequence; this sequence
                              ///< waits until the first one has computed them
  int64_t sent_blocks = 0;    ///< blocks of the table that the ranks know
  bool reset_table = true;    ///< the ranks' table of the slot must be replaced
  int64_t cached_blocks = 0;  ///< leading blocks that are in the prefix cache
  BlockPool::PrefixNode prefix_node = 0;  ///< node of the last of them
  DraftLength draft_length;

  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
  int64_t uncomputed_tokens() const { return length() - computed; }
};

/// An input of an encoder and the KV blocks of its states, which the cross-attention of several sequences reads.
struct EncoderSource {
  std::vector<int32_t> tokens;
  Arrays inputs;       ///< in place of tokens, of an encoder of images or audio
  int64_t states = 0;  ///< that the encoder makes of either
  std::vector<int32_t> blocks;
  bool encoded = false;
};

/// A request with its sequences: parallel samples or beams. A request with several inputs of the encoder has a sequence
/// for each input in place of one; they stand beside each other, have the same tokens, and are sampled as one.
struct SequenceGroup {
  Request request;  ///< with complete sampling parameters; of an encoder-decoder model the prompt is the start of the
                    ///< answer
  Listener on_event;
  std::vector<EncoderSource> sources;  ///< of an encoder-decoder: one, or several weighted ones
  std::vector<float> log_weights;      ///< of several sources; empty for others
  std::vector<Sequence> sequences;     ///< one until the prompt is computed, or one for each weighted source
  std::vector<int32_t> spare_slots;    ///< for the sequences that fork from the first one
  std::optional<BeamSearch> search;
  /// The constraint of each sequence that has begun, by Sequence::number; empty: the request has none; nullptr: the
  /// beam is no answer. Their state is that after the sequence's tokens, also while the group waits after a preemption.
  std::vector<std::shared_ptr<TokenConstraint>> constraints;
  std::vector<Candidate> candidates;  ///< of the beams whose rows have come, until those of all have
  int64_t ranked = 0;                 ///< number of these beams
  std::vector<bool> ended;            ///< one flag for each returned sequence
  /// With Request::prompt_logprobs: the prompt's tokens from the second on that the ranks have scored, and how many
  /// they will have when the steps in flight have run.
  std::vector<PromptToken> scored_prompt;
  int64_t scores_planned = 0;
  Time submitted, admitted;
  int64_t cached_tokens = -1;  ///< prompt tokens found in the prefix cache; -1 before admission
  bool first_event_sent = false;
  bool cancelled = false;
  int64_t in_flight = 0;  ///< entries in steps whose results have not arrived
  bool retired = false;   ///< ended; results still in flight are discarded
  bool long_rope =
      false;  ///< the keys in its blocks are rotated as those of sequences beyond LongRoPE's original length

  /// Number of sequences for each beam or sample.
  int64_t copies() const { return std::max<int64_t>(1, static_cast<int64_t>(sources.size())); }
  bool is_weighted() const { return !log_weights.empty(); }
  /// Number of beams or samples that run at once after the prompt is computed.
  int64_t max_width() const { return std::max(request.search.num_beams, request.search.num_return_sequences); }
  /// Number of beams or samples that run now.
  int64_t width() const { return static_cast<int64_t>(sequences.size()) / copies(); }
  /// Number of sequences that run at once after the prompt is computed.
  int64_t max_sequences() const { return max_width() * copies(); }
  int64_t prompt_tokens() const { return static_cast<int64_t>(request.prompt.size()); }
  int64_t generated(const Sequence& sequence) const { return sequence.length() - prompt_tokens(); }
  /// Returns true while tokens of the prompt are to be scored, so that all its rows have to be computed.
  bool scores_prompt() const { return request.prompt_logprobs >= 0 && scores_planned < scores_wanted(); }
  int64_t scores_wanted() const { return prompt_tokens() - 1; }
  bool has_source() const { return !sources.empty(); }
  /// Number of states that the encoder makes of all sources.
  int64_t source_states() const;
  /// Returns true if the sequence has exactly one uncomputed token, so that it takes part in a step with one row.
  bool ready(const Sequence& sequence) const;
  bool all_ready() const;
  bool done() const;
};

/// Upper bound of the KV blocks of a request. Its `width` sequences share the whole blocks of the prompt; all other
/// blocks are their own. `source` is the number of the encoder's states.
int64_t max_blocks(int64_t prompt, int64_t max_new_tokens, int64_t source, int64_t width);

}  // namespace pm::engine
