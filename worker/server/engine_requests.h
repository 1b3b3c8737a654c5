// From what a request asks to what the engine is given: tokens, lengths that fit, sampling.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "worker/server/asked.h"
#include "worker/server/completions.h"

namespace pm::server {

/// How long an answer may be, in the words of the dialect.
struct Length {
  std::string field = "max_tokens";          ///< what sets it, for messages
  std::optional<int64_t> new_tokens;         ///< asked for: refused when the window has no room for them
  std::optional<int64_t> in_all;             ///< the same, prompt (or an encoder-decoder's start token) included
  std::optional<int64_t> otherwise;          ///< where nothing is asked: at most this, and what the window leaves
  std::optional<int64_t> otherwise_in_all;   ///< the same, counted as in_all
  std::optional<int64_t> least_in_all;       ///< no end token before
};

/// Token ids of prompts, as the route calls them in messages ("prompt"). Texts get the special tokens that the checkpoint's tokenizer adds.
std::vector<std::vector<int32_t>> tokens_of(const Serving&, const std::vector<Prompt>& prompts, const std::string& field);

/// One request per prompt, each for search.num_return_sequences answers. Throws ApiError 400 that names what does not fit.
std::vector<engine::Request> engine_requests(const Serving&, const std::string& id, std::vector<std::vector<int32_t>> prompts, const std::string& field, const Asked&,
                                             const engine::Sampling& sampling, const engine::Search&, const Length&, int64_t logprobs);

/// Whether prompts go to an encoder, so that the answer does not continue them.
bool reads_source(const Serving&);

}  // namespace pm::server
