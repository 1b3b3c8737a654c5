// What OpenAI's two ways to generate answer alike: usage and log-probabilities.
#pragma once
#include <nlohmann/json.hpp>

#include "worker/server/answer.h"

namespace pm::server {

/// {"prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details": {"cached_tokens"}}; a prompt counts once for all its answers.
nlohmann::json usage_json(const Answer&);

/// Of completions, for the tokens of a choice from `from` on: {"tokens", "token_logprobs", "top_logprobs", "text_offset"}. Offsets count characters,
/// `before` them. Alternatives are listed by their text, the token itself among them.
nlohmann::json completion_logprobs(const Tokenizer*, const Choice&, size_t from, size_t before);

/// Of a chat: {"content": [{"token", "logprob", "bytes", "top_logprobs"}], "refusal": null}. Bytes are null for a token that is part of a character.
nlohmann::json chat_logprobs(const Tokenizer*, const Choice&, size_t from);

}  // namespace pm::server
