// SPDX-License-Identifier: Apache-2.0
// Parses and validates the body of POST /v1/chat/completions.
#pragma once
#include <string>
#include <string_view>

#include "worker/server/generation/generation_params.h"
#include "worker/server/images/image_reference.h"
#include "worker/server/replies/tool_choice.h"
#include "worker/server/serving/content_form.h"
#include "worker/server/serving/unknown_fields.h"

namespace pm::server {

struct ChatRequest {
  std::string conversation;            ///< JSON for ChatTemplate::render, without the current time
  std::vector<ImageReference> images;  ///< of all messages, in their order
  GenerationParams params;
  ToolChoice tools;
  int64_t n = 1;
  int64_t logprobs = -1;         ///< number of alternatives per token; -1: no log-probabilities
  int64_t prompt_logprobs = -1;  ///< the same for tokens of the prompt
  bool stream = false, include_usage = false;
  bool return_token_ids = false;  ///< extension of OpenAI's API: choices carry "token_ids"
};

/// Each message has a role (system, developer, user, assistant, tool) and content. The content is a text, or parts of
/// type "text" and "image_url". A template gets it in its own form: as parts, or as one text, of texts that are joined
/// by line feeds. OpenAI sends the arguments of a tool call as a string of JSON; it is parsed, because templates expect
/// an object. Throws ApiError: 400 that names the field, 404 for another model's name. Unknown fields, also of
/// messages, reach neither the engine nor the template.
ChatRequest parse_chat(std::string_view body, const ServedNames&, const ContentForm&, UnknownFields&);

}  // namespace pm::server
