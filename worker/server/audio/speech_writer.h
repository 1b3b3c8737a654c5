// SPDX-License-Identifier: Apache-2.0
// Transcribes audio with a model that generates the text from it: an encoder of audio and a decoder of text.
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
};

/// Generates the tokens for each window of audio, without the decoder's start token; windows run beside each other.
/// `field` names the audio in messages. Returns nothing when the client is gone. Throws ApiError 400 for lengths that
/// do not fit, and what the engine throws.
std::optional<std::vector<std::vector<int32_t>>> write_speech(const ServerContext&, const RoutedRequest&,
                                                              std::vector<Arrays> windows, const WritingOptions&,
                                                              const std::string& field,
                                                              const std::shared_ptr<void>& admitted);

}  // namespace pm::server
