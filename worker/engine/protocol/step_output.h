// SPDX-License-Identifier: Apache-2.0
// The result of a step message on the ranks, and the sampling of tokens from it on rank 0.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "worker/base/array.h"
#include "worker/engine/protocol/step_message.h"
#include "worker/engine/sampling/sampler.h"

namespace pm::engine {

/// Made by tensor rank 0 of the last stage of a data-parallel rank; empty on all other ranks.
struct StepOutput {
  at::Tensor argmax;                       ///< [rows of Argmax entries] int64: one, and one more for each draft
  at::Tensor sampled;                      ///< [samples of all Sampled entries] int64, those of drafts included
  at::Tensor logits;                       ///< [rows of Logits entries, vocabulary] fp32, contiguous
  std::vector<PromptToken> prompt_tokens;  ///< StepEntry::scored of all entries
  /// [rows of all entries with StepEntry::states, hidden] F32, on the device of the rank that made them, or on the host
  /// when it came from another process.
  at::Tensor states;
  std::vector<Arrays> outputs;  ///< one per request of the message's forward job
};

std::vector<uint8_t> encode(const StepOutput&);
/// Decodes an output. Throws std::invalid_argument for bytes that encode() cannot have written.
StepOutput decode_output(std::span<const uint8_t>);

/// Parameters with which rank 0 samples from the logits of an entry. Spans and pointers stay valid until the step
/// completes.
struct SamplingInput {
  const SamplingParams* sampling = nullptr;
  History history;
  int64_t sequence = 0;     ///< index among the request's sequences, the second counter of the random numbers
  int64_t num_samples = 1;  ///< number of tokens, for sequences `sequence`, `sequence` + 1, ... with equal history
  int64_t logprobs = -1;    ///< as in Request::logprobs
  /// Of an entry whose sequence has several sources: the entries of these are as many, one after another, and the
  /// scores are log(sum(exp(log_weight) softmax(logits))) over them.
  std::span<const float> log_weights = {};
  std::optional<Beams> beams;  ///< beam search: return candidates instead of tokens
  /// Of an entry with drafts: the tokens of `history`, which the span refers to, and the drafts behind them; otherwise
  /// nullptr.
  std::shared_ptr<const std::vector<int32_t>> drafted = {};
  /// The sequence's constraint at this token; nullptr: none.
  std::shared_ptr<TokenConstraint> constraint = {};
  std::shared_future<TokenMask> mask = {};  ///< of the constraint, when MaskThread computes it; else sample() does
};

/// Returns the parameters with which a device samples as sample() does, for sequences `sequence`, `sequence` + 1, ...
/// of this history.
DeviceSampling device_sampling(const SamplingParams&, const History&, int64_t sequence, int64_t num_samples,
                               size_t vocabulary);

/// Tokens or beam candidates that follow an entry. Of an entry with drafts, the tokens are those drafts that sampling
/// chooses too, up to the first other token, which is the last one.
struct SamplerOutput {
  std::vector<Token> tokens;
  std::vector<Candidate> candidates;
  std::string error;  ///< not empty: why no token continues the sequence as its constraint demands
};

/// Returns one output per entry that requests one, in order; entries with log_weights have one together. Each token is
/// sampled with the parameters, the history and the random number that it has in a step of its own, so that drafts
/// change no answer. `sampling_inputs` holds one element per Logits entry, or per entries with log_weights.
std::vector<SamplerOutput> sample(const StepMessage&, std::span<const SamplingInput> sampling_inputs,
                                  const StepOutput&);

}  // namespace pm::engine
