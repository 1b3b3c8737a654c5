// SPDX-License-Identifier: Apache-2.0
// Speculative decoding: a drafter proposes tokens that may come next in a sequence, one step computes the rows of all
// of them, and those that the sampler chooses too are kept. A drafter changes how fast tokens come, never which.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "worker/engine/engine.h"

namespace pm::engine {

/// A sequence that may draft in the next step.
struct DraftRequest {
  int32_t slot = 0;                 ///< of the sequence; no other one that runs has it
  std::span<const int32_t> tokens;  ///< prompt and answer so far
  int64_t count = 0;                ///< most drafts, at least 1
  size_t prompt = 0;                ///< tokens of the prompt
  const SamplingParams* sampling = nullptr;
  int64_t sequence = 0;  ///< index among the request's sequences, the second counter of the random numbers
};

/// Hidden states of the tokens of a sequence, behind the last layer of the model.
struct TokenStates {
  int32_t slot = 0;
  std::span<const int32_t> tokens;  ///< of the sequence, as far as they are known: more than there are states of
  /// Tokens of the prompt; 0 where it is not expected that drafts pay, so that reading the prompt would not either.
  int64_t prompt = 0;
  int64_t first = 0;  ///< position of the first row
  at::Tensor rows;    ///< [tokens from `first` on, hidden] F32
};

/// What a drafter proposes.
struct Drafts {
  /// For each request at most `count` ids that may follow its tokens; fewer, or none, where there is no guess.
  std::vector<std::vector<int32_t>> tokens;
  /// The drafter also read texts that it had not seen, so that the time of the step does not say what drafts cost.
  bool read_texts = false;
};

/// Proposes tokens. Called by one thread. propose() has all tokens of a sequence, so that nothing has to be undone
/// when some are rejected, or when a sequence is computed again.
class Drafter {
 public:
  virtual ~Drafter() = default;
  virtual Drafts propose(std::span<const DraftRequest>) = 0;
  /// Learns the states of a step's tokens, but for rejected drafts: of those sequences that may draft, in the order of
  /// their tokens. What comes from the prefix cache has none. For Speculation::reads_states.
  virtual void observe(std::span<const TokenStates>) {}
  /// Learns that a sequence forked, and the new one has `slot`.
  virtual void fork(int32_t /*parent*/, int32_t /*slot*/) {}
  /// Learns that the sequence of this slot ended, or waits without a slot.
  virtual void forget(int32_t /*slot*/) {}
};

/// How tokens are drafted.
struct Speculation {
  int64_t tokens = 8;  ///< most drafts of a sequence in a step
  /// Makes the drafter of a data-parallel rank.
  std::function<std::unique_ptr<Drafter>()> make_drafter;
  bool reads_states = false;  ///< the drafter reads hidden states of the model
  /// Most rows of a step with drafts: up to so many the device gives a row the same bits whatever is beside it.
  int64_t step_rows = std::numeric_limits<int64_t>::max();
};

/// Lengths of n-grams: tokens at the end of a sequence that are looked up in it.
struct NgramLengths {
  int64_t min = 2, max = 4;
};

/// Returns the drafter of n-gram speculation, also known as prompt lookup.
std::unique_ptr<Drafter> ngram_drafter(const NgramLengths&);

}  // namespace pm::engine
