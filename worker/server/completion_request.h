// The body of POST /v1/completions, validated.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "worker/engine/request.h"

namespace pm::server {

using Prompt = std::variant<std::string, std::vector<int32_t>>;

struct CompletionRequest {
  std::vector<Prompt> prompts;           ///< at least one
  std::optional<int64_t> max_tokens;
  std::optional<double> temperature, top_p, min_p;
  std::optional<double> presence_penalty, frequency_penalty, repetition_penalty;
  std::optional<int64_t> min_tokens;     ///< vLLM's name: no end token before
  std::optional<int64_t> top_k;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  bool stream = false, include_usage = false;
  bool ignore_eos = false;               ///< beyond OpenAI's API: go on after an end token
  bool return_token_ids = false;         ///< beyond OpenAI's API: choices carry "token_ids"
};

/// Throws ApiError: 400 that names the field, 404 for another model's name.
CompletionRequest parse_completion(std::string_view body, const std::string& model);

/// Sampling of a request. Unlike OpenAI (temperature 1) and like vLLM, absent values are the model's: greedy unless its
/// generation_config.json says do_sample. temperature 0 is greedy; a positive one, or top_p or top_k alone, samples.
/// `seed` is used where the request has none.
engine::Sampling sampling_of(const CompletionRequest&, const engine::Sampling& defaults, uint64_t seed);

}  // namespace pm::server
