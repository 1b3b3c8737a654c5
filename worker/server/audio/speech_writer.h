// SPDX-License-Identifier: Apache-2.0
// Generates text from audio: an encoder of audio and a decoder of text.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/server/serving/server_context.h"

namespace pm::server {

/// Options of the generation; absent values are those of generation_config.json.
struct WritingOptions {
  double temperature = 0;  ///< above 0: tokens are sampled
  std::optional<int64_t> max_new_tokens;
  bool plain = false;  ///< greedy, by the model's scores as they are: generation_config.json does not count
};

/// A window of audio.
struct SpeechWindow {
  Arrays source;
  std::vector<int32_t> start;  ///< the beginning of the decoder's sequence; empty: the model's start token
  std::shared_ptr<const engine::TokenConstraint> constraint;  ///< with it there are no beams
};

struct WrittenSpeech {
  std::vector<int32_t> ids;  ///< without those of the beginning
  double mean_logprob = 0;   ///< of the tokens, the end token among them; only with a constraint
};

/// Generates the tokens for each window; windows run beside each other. `field` names the audio in messages. Returns
/// nothing when the client is gone. Throws ApiError 400 for lengths that do not fit, and what the engine throws.
std::optional<std::vector<WrittenSpeech>> write_speech(const ServerContext&, const RoutedRequest&,
                                                       std::vector<SpeechWindow>, const WritingOptions&,
                                                       const std::string& field, const std::shared_ptr<void>& admitted);

}  // namespace pm::server
