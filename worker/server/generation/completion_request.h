// SPDX-License-Identifier: Apache-2.0
// Parses and validates the body of POST /v1/completions.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/server/generation/generation_params.h"
#include "worker/server/serving/unknown_fields.h"

namespace pm::server {

struct CompletionRequest {
  std::vector<Prompt> prompts;  ///< at least one
  GenerationParams params;
  int64_t n = 1;                 ///< completions per prompt
  int64_t best_of = 1;           ///< generated per prompt; the reply has the n likeliest
  int64_t logprobs = -1;         ///< number of alternatives per token; -1: no log-probabilities
  int64_t prompt_logprobs = -1;  ///< of "prompt_logprobs"; the same for tokens of the prompt
  bool echo = false;             ///< the reply begins with the prompt
  bool only_prompt = false;      ///< max_tokens is 0: the reply has nothing behind the prompt
  bool stream = false, include_usage = false;
  bool return_token_ids = false;  ///< extension of OpenAI's API: choices carry "token_ids"
};

/// Throws ApiError: 400 that names the field, 404 for another model's name.
CompletionRequest parse_completion(std::string_view body, const ServedNames&, UnknownFields&);

/// Reads max_new_tokens under one of OpenAI's names for it. Throws ApiError 400.
void read_max_tokens(Fields&, const std::string& name, GenerationParams&);

/// A field of other servers that would change the answer, and what to send instead.
struct UnsupportedField {
  const char* name;
  const char* advice;
};
/// Returns those fields of completions and chat completions. They are refused by name, never ignored.
std::span<const UnsupportedField> unsupported_fields();

/// The fields that completions and chat completions share and that GenerationParams does not hold.
struct OpenAiFields {
  int64_t n = 1;
  int64_t prompt_logprobs = -1;
  bool stream = false, include_usage = false;
};
/// Reads the fields that completions and chat completions share: the model's name, the sampling parameters, n, stop,
/// stream, stream_options, response_format, structured_outputs and prompt_logprobs. `body` is the request's text.
/// Throws ApiError 400 that names the field; unsupported_fields() are refused.
OpenAiFields read_openai(Fields&, std::string_view body, const ServedNames&, GenerationParams&, UnknownFields&);

}  // namespace pm::server
