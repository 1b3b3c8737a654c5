// The step message: all that a rank has to know to do one step. Rank 0 makes it, the channel carries it, every rank obeys it.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "worker/engine/request.h"
#include "worker/ops/draw.h"

namespace pm::engine {

/// What comes after an entry's last token.
enum class Want : uint8_t {
  Nothing,
  Best,     ///< the id with the highest score: no rank has to see all scores
  Drawn,    ///< ids that are chosen where the scores are, as `drawing` says
  Scores,   ///< all scores, gathered on rank 0, which chooses from them
};

/// How ids are chosen that come after an entry: of `count` sequences how.sequence, how.sequence + 1, ... that begin alike, one each.
struct Drawing {
  ops::Draw how;
  int64_t count = 1;
  std::vector<ops::ScoreEdit> edits;
  bool operator==(const Drawing&) const = default;
};

/// One sequence's share of a step.
struct StepEntry {
  int32_t slot = 0;
  bool anew = false;                  ///< the slot's tables are replaced by those given here: a sequence begins, or goes on where another was
  int64_t context = 0;                ///< tokens that the cache holds already
  std::vector<int32_t> tokens;        ///< ids of the tokens context, context + 1, ...
  std::vector<int32_t> blocks;        ///< KV blocks appended to the slot's table before the step
  std::vector<int32_t> source;        ///< encoder-decoder, once per request: what the encoder reads
  std::vector<int32_t> source_blocks; ///< with `anew`: where the cross-attention's keys and values are
  int64_t source_tokens = 0;          ///< with `anew`: how many there are
  Want want = Want::Nothing;
  Drawing drawing = {};               ///< of Want::Drawn
  bool operator==(const StepEntry&) const = default;
};

/// One pass over the named inputs of one or more requests.
struct ForwardJob {
  std::vector<Arrays> inputs;         ///< of each request
  bool hidden_states = false, attentions = false;
  std::vector<std::string> outputs;
  bool operator==(const ForwardJob&) const = default;
};

struct StepMessage {
  int64_t step = 0;
  bool stop = false;                  ///< the rank leaves after this message
  std::vector<int32_t> freed;         ///< slots whose tables are dropped before the step
  std::vector<int32_t> copies;        ///< pairs of blocks: keys and values of the first are copied to the second before the step
  std::vector<StepEntry> entries;
  int32_t bucket = 0;                 ///< how the entries' tokens go: as recorded launches for so many places, which are recorded when they come first; 0: kernel by kernel
  std::optional<ForwardJob> forward;  ///< run after the entries
  bool operator==(const StepMessage&) const = default;
};

std::vector<uint8_t> encode(const StepMessage&);
/// Throws std::invalid_argument for bytes that encode() cannot have written.
StepMessage decode(std::span<const uint8_t>);

}  // namespace pm::engine
