// The sampler: a pure function of scores, parameters, what was said so far, and a random number. Order and arithmetic are Hugging Face's.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "worker/engine/request.h"

namespace pm::engine {

/// What a sequence consists of so far; the first `prompt` tokens were given.
struct History {
  std::span<const int32_t> tokens;
  size_t prompt = 0;
};

/// Scores after all that `Sampling` asks for, as Hugging Face's processors leave them: repetition_penalty, presence and frequency penalties,
/// no_repeat_ngram_size, bad_words, min_new_tokens; when sampling then temperature, top_k, top_p, min_p, typical_p. -inf for what may not come.
std::vector<float> processed(std::span<const float> logits, const Sampling&, const History& = {});
/// The best id of the processed scores, the smaller one when equal; when sampling the one that uniform number u in (0, 1) draws from their
/// softmax: the first whose cumulated probability exceeds u.
int64_t choose(std::span<const float> logits, const Sampling&, const History&, double u);

}  // namespace pm::engine
