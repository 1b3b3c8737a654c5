// What the routes share, and POST /v1/completions.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/engine/request.h"
#include "worker/server/abilities.h"
#include "worker/server/generation.h"
#include "worker/server/generation_defaults.h"
#include "worker/server/metrics.h"
#include "worker/server/router.h"
#include "worker/tokenizer/chat_template.h"
#include "worker/tokenizer/tokenizer.h"

namespace pm::server {

/// What the routes share; all of it outlives every request.
struct Serving {
  engine::Engine& engine;
  const Tokenizer* tokenizer;                ///< nullptr: token ids in and out
  RequestMetrics& metrics;
  std::string model;                         ///< the name clients use
  int64_t window = 0;                        ///< tokens of prompt and answer together
  std::vector<int64_t> eos;
  const GenerationDefaults& defaults;        ///< where a request is silent
  std::function<uint64_t()> random;          ///< seeds where a request has none
  std::function<int64_t()> unix_time;        ///< seconds, for "created"
  std::atomic<bool>& stopping;               ///< ends every wait with 503
  std::function<std::shared_ptr<void>()> admit;   ///< throws ApiError 503 unless serving; the result is held while the request runs
  const Abilities& abilities;
  std::function<std::shared_ptr<void>()> decoding;   ///< waits for one of the few places in which images are decoded; the result holds it
  const std::optional<ChatTemplate>& chat_template;
  int64_t decoder_start = -1;                ///< an encoder-decoder's first token
  std::chrono::milliseconds patience{10'000};   ///< with a client that does not read its stream
};

/// OpenAI's completions, plain or as server-sent events.
http::Response create_completion(const Serving&, const Call&);

}  // namespace pm::server
