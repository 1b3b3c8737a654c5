// The sampler: a pure function of scores, parameters and a random number. Hugging Face's order: temperature, top_k, top_p.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "worker/engine/request.h"

namespace pm::engine {

/// Scores after temperature, top_k and top_p as Hugging Face's processors leave them: -inf for what may not be drawn.
std::vector<float> processed(std::span<const float> logits, const Sampling&);
/// The token that uniform number u in (0, 1) draws from softmax(processed(logits)): the first id whose cumulated probability exceeds u.
int64_t draw(std::span<const float> logits, const Sampling&, double u);

}  // namespace pm::engine
