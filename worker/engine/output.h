// What a lane's ranks make of a step message, before rank 0 chooses from it.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "worker/base/array.h"
#include "worker/engine/sampler.h"
#include "worker/engine/step.h"

namespace pm::engine {

/// Made by tensor rank 0 of a lane's last stage; empty on all others.
struct StepOutput {
  at::Tensor best;               ///< [entries that want the best] int64
  at::Tensor drawn;              ///< [tokens drawn, of all entries that want some] int64
  at::Tensor scores;             ///< [entries that want scores, vocabulary] fp32, contiguous
  std::vector<Arrays> outputs;   ///< of each request of the message's forward job
};

std::vector<uint8_t> encode(const StepOutput&);
/// Throws std::invalid_argument for bytes that encode() cannot have written.
StepOutput decode_output(std::span<const uint8_t>);

/// How rank 0 chooses after an entry that wants scores. Spans and pointers live until the step is done.
struct Choosing {
  const Sampling* sampling = nullptr;
  History history;
  int64_t sequence = 0;                ///< which of its request's sequences: the random numbers' second counter
  int64_t draws = 1;                   ///< tokens for sequences `sequence`, `sequence` + 1, ... that begin alike
  int64_t logprobs = -1;               ///< as Request::logprobs
  std::optional<Beams> beams;          ///< a beam search: candidates instead of tokens
};

/// What came after an entry that wanted something.
struct Chosen {
  std::vector<Token> tokens;
  std::vector<Candidate> candidates;
};

/// One per entry of the message that wants something, in order. `choosing`: one per entry that wants scores.
std::vector<Chosen> choose(const StepMessage&, std::span<const Choosing> choosing, const StepOutput&);

}  // namespace pm::engine
