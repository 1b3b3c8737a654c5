// SPDX-License-Identifier: Apache-2.0
// Builds the parts of replies that completions and chat completions share: usage and log-probabilities.
#pragma once
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "worker/server/generation/output_processor.h"

namespace pm::server {

/// Returns {"prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details": {"cached_tokens"}}. A prompt
/// counts once for all its choices.
nlohmann::json usage_json(const OutputProcessor&);

/// Returns the "logprobs" of a completion, {"tokens", "token_logprobs", "top_logprobs", "text_offset"}, for the tokens
/// of a choice from index `from` on. Offsets count characters and begin at `before`. top_logprobs maps texts to
/// log-probabilities and includes the token itself.
nlohmann::json completion_logprobs(const Tokenizer*, const Choice&, size_t from, size_t before);

/// Returns the same for the tokens of a prompt that is shown before its completion. The first has no log-probability:
/// null. At most `best` alternatives are named, and the token itself.
nlohmann::json echoed_logprobs(const Tokenizer*, std::span<const int32_t> prompt,
                               const std::vector<engine::PromptToken>& scored, size_t best);
/// Appends the tokens of one "logprobs" of a completion to those of another.
void append_logprobs(nlohmann::json& to, const nlohmann::json& more);

/// Returns vLLM's "prompt_logprobs": null for the first token, then for each one an object by token id, {"4":
/// {"logprob", "rank", "decoded_token"}}, of its `best` alternatives and the token itself.
nlohmann::json prompt_logprobs(const Tokenizer*, const std::vector<engine::PromptToken>& scored, size_t best);

/// Returns the passages that an answer was made of, best first: [{"number", "score", "title", "text"}].
nlohmann::json passages_json(const std::vector<engine::RetrievedPassage>&);

/// Returns the "logprobs" of a chat completion: {"content": [{"token", "logprob", "bytes", "top_logprobs"}],
/// "refusal": null}. bytes is null for a token that is part of a character.
nlohmann::json chat_logprobs(const Tokenizer*, const Choice&, size_t from);

}  // namespace pm::server
