// The API of rank 0: OpenAI's and the predecessor's routes, health, metrics, plan and memory.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "planner/plan.h"
#include "worker/comm/status.h"
#include "worker/engine/request.h"
#include "worker/server/abilities.h"
#include "worker/server/api_keys.h"
#include "worker/server/generation_defaults.h"
#include "worker/server/http.h"
#include "worker/server/metrics.h"
#include "worker/tokenizer/chat_template.h"
#include "worker/tokenizer/tokenizer.h"

namespace pm::server {

struct ApiOptions {
  http::Options http{.port = 8000, .id_prefix = "req"};
  std::string model;                                   ///< the name that clients use
  std::vector<int64_t> eos;                            ///< ids that end a sequence
  Abilities abilities;                                 ///< read_abilities(); absent: a decoder that generates
  GenerationDefaults defaults;                         ///< of requests that do not say: read_generation_defaults()
  std::optional<ChatTemplate> chat_template;           ///< absent: conversations are refused
  int64_t decoder_start = -1;                          ///< an encoder-decoder's first token
  std::shared_ptr<ApiKeys> keys;                       ///< what requests need one of; absent: anybody may ask
  std::shared_ptr<StepMetrics> steps;                  ///< what the engine tells of its steps; absent: no such metrics
  std::function<std::vector<Collective>()> collectives;    ///< of rank 0; from the server's threads; absent: no such metrics
  std::shared_ptr<comm::StatusBoard> board;            ///< of the group; absent: always serving
  std::chrono::milliseconds accept_while_draining{5000};   ///< the time that endpoints take to forget us
  std::function<int64_t()> unix_time;                  ///< seconds; absent: the system's clock
  std::function<uint64_t()> random;                    ///< seeds and the process's part of request ids; absent: std::random_device
};

/// Serves while every rank on the board is Ready or Draining; else answers 503 to what generates, and the rest as always.
class ApiServer {
 public:
  /// `engine` and `tokenizer` (nullptr: token ids only) outlive the server. The window is plan.sequence_length.
  ApiServer(ApiOptions, engine::Engine& engine, const Tokenizer* tokenizer, Plan plan);
  ~ApiServer();
  ApiServer(const ApiServer&) = delete;
  ApiServer& operator=(const ApiServer&) = delete;
  /// Throws Error{Usage, "PortInUse"}.
  void start();
  int bound_port() const;
  /// Rank 0 turns Draining (so the group is unready), requests are served for accept_while_draining with "Connection: close", then refused
  /// with 503 while those in progress finish. True when all had finished within `limit`. Then call stop().
  bool drain(std::chrono::milliseconds limit);
  /// Ends what still runs with 503, writes the replies, joins. Idempotent.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pm::server
