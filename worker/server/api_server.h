// SPDX-License-Identifier: Apache-2.0
// The API server of rank 0: OpenAI's and Hugging Face's routes, health, metrics, plan and memory.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "contract/ports.h"
#include "planner/plan.h"
#include "worker/comm/membership/status_table.h"
#include "worker/engine/engine.h"
#include "worker/server/generation/generation_defaults.h"
#include "worker/server/http/api_keys.h"
#include "worker/server/http/http.h"
#include "worker/server/monitoring/metric_names.h"
#include "worker/server/monitoring/metrics.h"
#include "worker/server/serving/adapter_routes.h"
#include "worker/server/serving/capabilities.h"
#include "worker/server/serving/served_names.h"
#include "worker/tokenizer/chat_template.h"
#include "worker/tokenizer/entity_tokenizer.h"
#include "worker/tokenizer/reply_form.h"
#include "worker/tokenizer/tokenizer.h"

namespace pm::server {

struct ApiOptions {
  http::Options http{.port = http_port, .id_prefix = "req"};
  ServedNames names;                                  ///< model names in the API, at least one
  AdapterUpdates adapters;                            ///< absent: adapters do not change while the server runs
  std::vector<int64_t> eos;                           ///< token ids that end a sequence
  Capabilities capabilities;                          ///< from read_capabilities(); default: a decoder that generates
  GenerationDefaults defaults;                        ///< of requests that do not say: read_generation_defaults()
  std::optional<ChatTemplate> chat_template;          ///< absent: chat requests are refused
  std::optional<ReplyForm> replies;                   ///< absent: replies of chats are content as they are
  const Tokenizer* prompt_tokenizer = nullptr;        ///< of prompts; absent: that of answers
  const EntityTokenizer* entity_tokenizer = nullptr;  ///< absent: entities come as ids only
  int64_t decoder_start = -1;                         ///< first token of an encoder-decoder's output
  bool strict_requests = false;                       ///< unknown fields are refused on every route
  std::filesystem::path media_folder;                 ///< whose files requests may name as images; empty: none
  std::function<std::string(const std::string& url)> fetch_media;  ///< ServerContext's
  bool page = true;                                                ///< whether browsers get a page at /
  std::shared_ptr<ApiKeys> keys;                                   ///< accepted API keys; absent: no key is needed
  std::shared_ptr<StepMetrics> steps;                              ///< metrics of engine steps; absent: none
  MetricNames metric_names = MetricNames::Both;                    ///< of those that vLLM has too
  Capacity capacity;                                               ///< of the replica
  std::function<std::vector<Collective>()>
      collectives;                                  ///< counters of rank 0, read on the server's threads; absent: none
  std::shared_ptr<comm::StatusTable> status_table;  ///< of the group; absent: always serving
  std::chrono::milliseconds accept_while_draining{5000};  ///< the time until endpoints stop routing here
  std::function<int64_t()> unix_time;                     ///< seconds; absent: the system clock
  std::function<uint64_t()> random;                       ///< for seeds and request ids; absent: std::random_device
};

/// The API server. Routes that run the model are refused with 503 unless every rank in the status table is Ready or
/// Draining; other routes are always served.
class ApiServer {
 public:
  /// `engine` and `tokenizer` (nullptr: token ids only) must outlive the server. The context window is
  /// plan.sequence_length.
  ApiServer(ApiOptions, engine::Engine& engine, const Tokenizer* tokenizer, Plan plan);
  ~ApiServer();
  ApiServer(const ApiServer&) = delete;
  ApiServer& operator=(const ApiServer&) = delete;
  /// Throws Error{PortInUse}.
  void start();
  int bound_port() const;
  /// Sets rank 0 to Draining, which makes the replica unready. Requests are served for accept_while_draining with
  /// "Connection: close", then refused with 503 while running ones finish. Returns true if all finished within `limit`.
  /// The caller then calls stop().
  bool drain(std::chrono::milliseconds limit);
  /// Ends running requests with 503, writes their replies and joins the threads. Idempotent.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pm::server
