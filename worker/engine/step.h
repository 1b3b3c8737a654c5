// The step message: all that a rank has to know to do one step. Rank 0 makes it, the channel carries it, every rank obeys it.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "worker/engine/request.h"

namespace pm::engine {

/// One sequence's share of a step.
struct StepEntry {
  int32_t slot = 0;
  int64_t sequence = 0;               ///< which sequence of its request: the sampler's second counter
  int64_t context = 0;                ///< tokens that the cache holds already
  std::vector<int32_t> tokens;        ///< explicit ids; empty: the id sampled for this slot last (carry)
  std::vector<int32_t> positions;     ///< explicit positions; empty: context, context + 1, ...
  std::vector<int32_t> blocks;        ///< KV blocks appended to the slot's table before the step
  std::vector<int32_t> source;        ///< encoder-decoder, at the sequence's first step: what the encoder reads
  std::vector<int32_t> source_blocks; ///< where the cross-attention's keys and values of it are kept
  bool sample = false;                ///< an id is wanted after the last token
  std::optional<Sampling> sampling;   ///< at the sequence's first step: how all of its tokens are chosen
  int64_t prompt = 0;                 ///< with it: how many tokens are given before the answer
  bool operator==(const StepEntry&) const = default;
};

/// One pass over named inputs. Names and shapes travel in the message; the values follow by broadcast, since images are large.
struct ForwardJob {
  Arrays inputs;
  bool hidden_states = false, attentions = false;
  std::vector<std::string> outputs;
  bool operator==(const ForwardJob&) const = default;
};

struct StepMessage {
  int64_t step = 0;
  bool stop = false;                  ///< the rank leaves after this message
  std::vector<int32_t> freed;         ///< slots whose tables are dropped before the step
  std::vector<StepEntry> entries;
  std::optional<ForwardJob> forward;  ///< run after the entries
  bool operator==(const StepMessage&) const = default;
};

/// The values of `forward`'s inputs stay behind.
std::vector<uint8_t> encode(const StepMessage&);
/// Inputs of `forward` have room for their values, all 0. Throws std::invalid_argument for bytes that encode() cannot have written.
StepMessage decode(std::span<const uint8_t>);

}  // namespace pm::engine
