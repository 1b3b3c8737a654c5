// SPDX-License-Identifier: Apache-2.0
// The context that the routes of the API share, and the checks that come before a route reads its request.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "contract/kv_block.h"
#include "worker/engine/engine.h"
#include "worker/server/http/router.h"
#include "worker/server/monitoring/metrics.h"
#include "worker/server/serving/capabilities.h"
#include "worker/server/serving/content_form.h"
#include "worker/server/serving/served_names.h"
#include "worker/tokenizer/chat_template.h"
#include "worker/tokenizer/entity_tokenizer.h"
#include "worker/tokenizer/reply_form.h"
#include "worker/tokenizer/tokenizer.h"

namespace pm::server {

struct GenerationDefaults;
class ImageRowCache;
class ResponseStore;

/// The state that all routes share. Everything that it refers to outlives every request.
struct ServerContext {
  engine::Engine& engine;
  const Tokenizer* tokenizer;         ///< nullptr: requests and replies carry token ids only
  const Tokenizer* prompt_tokenizer;  ///< of prompts, where it is another one than that of answers; else the same
  RequestMetrics& metrics;
  ServedNames names;                   ///< the names that clients use
  int64_t max_model_len = 0;           ///< tokens of prompt and answer together
  std::vector<int64_t> eos;            ///< ids of the end-of-sequence tokens
  const GenerationDefaults& defaults;  ///< values of parameters that a request leaves out
  std::function<uint64_t()> random;    ///< gives the seed of a request that has none
  std::function<int64_t()> unix_time;  ///< seconds, for "created"
  std::atomic<bool>& stopping;         ///< true: every wait ends with 503
  /// Throws ApiError 503 unless the server takes requests. The request holds the result while it runs.
  std::function<std::shared_ptr<void>()> admit;
  const Capabilities& capabilities;
  /// Waits until fewer images and audio files than the limit are being decoded. The caller holds the result while it
  /// decodes.
  std::function<std::shared_ptr<void>()> acquire_decoder;
  const std::optional<ChatTemplate>& chat_template;
  int64_t decoder_start = -1;  ///< id of an encoder-decoder's start token; -1: none
  /// A stream whose client reads nothing for this long is cancelled.
  std::chrono::milliseconds stream_write_timeout{10'000};
  size_t max_batch_tokens = step_tokens;              ///< of a batch of several rows: the token budget of a step
  const EntityTokenizer* entity_tokenizer = nullptr;  ///< of texts with entities; nullptr: there is none
  const ReplyForm* replies = nullptr;                 ///< how replies of chats are parsed; nullptr: they are content
  bool strict_requests = false;                       ///< unknown fields are refused where they would be ignored
  ResponseStore* responses = nullptr;                 ///< of POST /v1/responses; servers have one
  ContentForm content_form = {};                      ///< of the chat template
  ImageRowCache* image_rows = nullptr;                ///< of models that read images among a prompt's tokens
  std::filesystem::path media_folder = {};            ///< whose files requests may name; empty: they name none
  /// Returns what an http(s) URL names, or throws Error{InvalidRequest}; empty: requests name none.
  std::function<std::string(const std::string& url)> fetch_media = {};
};

/// Throws ApiError 404 when the model does not serve the route of the call; the message lists the routes that it
/// serves.
void refuse_unless_served(const ServerContext&, const RoutedRequest&);

/// Returns the body as one object in which the options of "parameters" (the form of Hugging Face's clients) stand
/// beside the other fields. Throws ApiError: 404 when the model does not serve the route, 400 for a body that is not
/// such an object.
nlohmann::json parse_route_body(const ServerContext&, const RoutedRequest&);

}  // namespace pm::server
