// SPDX-License-Identifier: Apache-2.0
// Builds the parts of replies that completions and chat completions share: usage and log-probabilities.
#pragma once
#include <nlohmann/json.hpp>

#include "worker/server/generation/output_processor.h"

namespace pm::server {

/// Returns {"prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details": {"cached_tokens"}}. A prompt
/// counts once for all its choices.
nlohmann::json usage_json(const OutputProcessor&);

/// Returns the "logprobs" of a completion, {"tokens", "token_logprobs", "top_logprobs", "text_offset"}, for the tokens
/// of a choice from index `from` on. Offsets count characters and begin at `before`. top_logprobs maps texts to
/// log-probabilities and includes the token itself.
nlohmann::json completion_logprobs(const Tokenizer*, const Choice&, size_t from, size_t before);

/// Returns the passages that an answer was made of, best first: [{"number", "score", "title", "text"}].
nlohmann::json passages_json(const std::vector<engine::RetrievedPassage>&);

/// Returns the "logprobs" of a chat completion: {"content": [{"token", "logprob", "bytes", "top_logprobs"}],
/// "refusal": null}. bytes is null for a token that is part of a character.
nlohmann::json chat_logprobs(const Tokenizer*, const Choice&, size_t from);

}  // namespace pm::server
