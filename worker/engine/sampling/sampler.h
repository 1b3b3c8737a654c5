// SPDX-License-Identifier: Apache-2.0
// The sampler: a pure function of scores, parameters, history and a random number, in Hugging Face's order and
// arithmetic.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "worker/engine/engine.h"
#include "worker/engine/sampling/beam_search.h"
#include "worker/ops/sample_batch.h"

namespace pm::engine {

/// The tokens of a sequence so far; the first `prompt` tokens are the prompt.
struct History {
  std::span<const int32_t> tokens;
  size_t prompt = 0;
};

/// Returns the score edits of penalties and bans, without forced tokens; one edit per id.
std::vector<ops::ScoreEdit> score_edits(const SamplingParams&, const History&, size_t vocabulary);
/// Returns true if the device's sampler supports these parameters.
bool supports_device_sampling(const SamplingParams&, int64_t vocabulary);

/// Applies the logits processors and warpers of Hugging Face in their order: repetition_penalty, presence and frequency
/// penalties, logit_bias, no_repeat_ngram_size, bad_words, suppressed tokens, min_new_tokens, forced tokens; when
/// sampling also temperature, top_k, top_p, min_p and typical_p, each of which keeps at least `min_tokens_to_keep`
/// tokens. A mask excludes tokens before these warpers; it allows end tokens where it allows the end. Excluded tokens
/// have the score -inf.
std::vector<float> process_logits(std::span<const float> logits, const SamplingParams&, const History& = {},
                                  size_t min_tokens_to_keep = 1, const TokenMask* = nullptr);
/// Returns true if the mask allows the token, which may be an end token.
bool allowed(const TokenMask&, const SamplingParams&, int64_t id);
/// Samples the next token id. Greedy decoding returns the id with the highest processed score, the smallest of equals.
/// Sampling returns the first id whose cumulative softmax probability exceeds the uniform number u in (0, 1). If every
/// token is excluded, the result is one of them.
int64_t sample_token(std::span<const float> logits, const SamplingParams&, const History&, double u,
                     const TokenMask* = nullptr);

/// Computes log(softmax(logits)).
std::vector<float> log_softmax(std::span<const float> logits);
/// Returns the token with its log-probability and the `best` most likely tokens; of equal ones the smaller id comes
/// first.
Token token_with_logprobs(std::span<const float> logits, int32_t id, int64_t best);

/// Returns a token of a prompt as these logits score it, with its rank and the `best` most likely tokens.
PromptToken scored_token(std::span<const float> logits, int32_t id, int64_t best);

/// The beams first, first + 1, ... that one row of logits continues, with their scores so far.
struct Beams {
  int64_t first = 0;
  std::vector<float> scores;
  int64_t num_candidates = 0;  ///< number of candidates over all beams
};
/// Returns the best continuations of these beams. Their scores are processed log-probabilities plus the beams' scores;
/// those that the mask does not allow have minus infinity. When sampling, candidates are drawn without replacement
/// (Gumbel-top-k; Kool et al. 2019), best first.
std::vector<Candidate> beam_candidates(std::span<const float> logits, const SamplingParams&, const History&,
                                       const Beams&, const TokenMask* mask = nullptr);

}  // namespace pm::engine
