// SPDX-License-Identifier: Apache-2.0
// Builds the engine's requests: prompts become token ids, and lengths are checked against the context window.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "worker/server/generation/generation_params.h"
#include "worker/server/serving/server_context.h"

namespace pm::server {

/// Limits on the length of an answer.
struct LengthLimits {
  std::string field = "max_tokens";       ///< name of the field that sets the limit, for messages
  std::optional<int64_t> max_new_tokens;  ///< requested; refused when the context window cannot hold them
  std::optional<int64_t> max_length;      ///< requested, including the prompt (encoder-decoder: the start token)
  std::optional<int64_t> default_max_new_tokens;  ///< without a requested limit: this, or what the window leaves
  std::optional<int64_t> default_max_length;      ///< the same, counted as max_length
  std::optional<int64_t> min_length;              ///< no end token before this length, counted as max_length
};

/// A prompt as the engine takes it: token ids, or the inputs of an encoder of images or audio with the ids that the
/// answer continues.
struct EncodedPrompt {
  std::vector<int32_t> ids;
  Arrays source;
  bool has_start = false;  ///< of the inputs of an encoder: the ids have the start token, or another one
};

/// Encodes prompts. Texts get the special tokens that the checkpoint's tokenizer adds. `field` names the prompts in
/// messages ("prompt"). Throws ApiError 400.
std::vector<EncodedPrompt> encode_prompts(const ServerContext&, std::vector<Prompt> prompts, const std::string& field);

/// Returns one request per prompt, each for search.num_return_sequences sequences. Throws ApiError 400 that names the
/// field whose length does not fit, or the constraint that cannot be held.
std::vector<engine::Request> make_engine_requests(const ServerContext&, const std::string& id,
                                                  std::vector<EncodedPrompt> prompts, const std::string& field,
                                                  const GenerationParams&, const engine::SamplingParams& sampling,
                                                  const engine::SearchParams&, const LengthLimits&, int64_t logprobs);

/// True when prompts go to an encoder, so that the answer does not continue them.
bool is_encoder_decoder(const ServerContext&);

}  // namespace pm::server
