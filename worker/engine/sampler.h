// The sampler: a pure function of scores, parameters, what was said so far, and a random number. Order and arithmetic are Hugging Face's.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "worker/engine/request.h"
#include "worker/engine/search.h"
#include "worker/ops/draw.h"

namespace pm::engine {

/// What a sequence consists of so far; the first `prompt` tokens were given.
struct History {
  std::span<const int32_t> tokens;
  size_t prompt = 0;
};

/// What penalties and bans make of the scores of a vocabulary, forced tokens apart: each id once.
std::vector<ops::ScoreEdit> edits(const Sampling&, const History&, size_t vocabulary);
/// Whether a device's sampler can choose as this asks.
bool drawn_on_device(const Sampling&, int64_t vocabulary);

/// Scores after all that `Sampling` asks for, as Hugging Face's processors leave them: repetition_penalty, presence and frequency penalties,
/// no_repeat_ngram_size, bad_words, min_new_tokens, forced tokens; when sampling then temperature, top_k, top_p, min_p, typical_p, each of
/// which leaves at least `least` tokens. -inf for what may not come.
std::vector<float> processed(std::span<const float> logits, const Sampling&, const History& = {}, size_t least = 1);
/// The best id of the processed scores, the smaller one when equal; when sampling the one that uniform number u in (0, 1) draws from their
/// softmax: the first whose cumulated probability exceeds u.
int64_t choose(std::span<const float> logits, const Sampling&, const History&, double u);

/// log(softmax(logits)).
std::vector<float> log_softmax(std::span<const float> logits);
/// The token with its log-probability and the `best` most likely ones; of equal ones the smaller id first.
Token described(std::span<const float> logits, int32_t id, int64_t best);

/// Beams first, first + 1, ... that this row of scores continues, with their scores so far.
struct Beams {
  int64_t first = 0;
  std::vector<float> scores;
  int64_t wanted = 0;              ///< candidates, over all of them
};
/// The best continuations of these beams: log-probabilities, processed as a sequence's scores are, on top of the beams' scores; when sampling
/// they are drawn without replacement (Gumbel-top-k; Kool et al. 2019), best draw first.
std::vector<Candidate> continuations(std::span<const float> logits, const Sampling&, const History&, const Beams&);

}  // namespace pm::engine
