// The body of POST /v1/completions, validated.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/server/asked.h"

namespace pm::server {

struct CompletionRequest {
  std::vector<Prompt> prompts;           ///< at least one
  Asked asked;
  int64_t n = 1;                         ///< answers to each prompt
  int64_t logprobs = -1;                 ///< >= 0: log-probabilities of tokens and so many alternatives
  bool echo = false;                     ///< the prompt's text before the answer's
  bool stream = false, include_usage = false;
  bool return_token_ids = false;         ///< beyond OpenAI's API: choices carry "token_ids"
};

/// Throws ApiError: 400 that names the field, 404 for another model's name.
CompletionRequest parse_completion(std::string_view body, const std::string& model);

/// What OpenAI's two ways to generate spell alike: temperature, presence of a model's name, n, stop, stream with its options.
struct OpenAiFields { int64_t n = 1; bool stream = false, include_usage = false; };
OpenAiFields read_openai(Fields&, const std::string& model, Asked&);

}  // namespace pm::server
