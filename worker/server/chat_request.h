// The body of POST /v1/chat/completions, validated.
#pragma once
#include <string>
#include <string_view>

#include "worker/server/asked.h"

namespace pm::server {

struct ChatRequest {
  std::string conversation;              ///< JSON for ChatTemplate::render, but for the time
  Asked asked;
  int64_t n = 1;
  int64_t logprobs = -1;                 ///< >= 0: log-probabilities of tokens and so many alternatives
  bool stream = false, include_usage = false;
  bool return_token_ids = false;         ///< beyond OpenAI's API: choices carry "token_ids"
};

/// Messages have a role (system, developer, user, assistant, tool) and content, a text or parts of type "text", which are joined by line feeds.
/// Arguments of tool calls, JSON in a text at OpenAI, become what they say, as templates expect. Throws ApiError: 400 that names the field, 404 for
/// another model's name.
ChatRequest parse_chat(std::string_view body, const std::string& model);

}  // namespace pm::server
