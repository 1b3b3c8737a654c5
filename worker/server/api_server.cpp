// SPDX-License-Identifier: Apache-2.0
#include "worker/server/api_server.h"
#include "worker/server/embedding/score.h"
#include "worker/server/embedding/sparse_embeddings.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <semaphore>
#include <thread>

#include "worker/server/audio/audio_classification.h"
#include "worker/server/audio/audio_embedding.h"
#include "worker/server/audio/transcription.h"
#include "worker/server/embedding/embeddings.h"
#include "worker/server/embedding/rerank.h"
#include "worker/server/embedding/similarity.h"
#include "worker/server/generation/chat.h"
#include "worker/server/generation/completions.h"
#include "worker/server/generation/generate.h"
#include "worker/server/http/api_error.h"
#include "worker/server/http/in_flight_counter.h"
#include "worker/server/http/json_response.h"
#include "worker/server/http/percent_encoding.h"
#include "worker/server/http/router.h"
#include "worker/server/images/detect.h"
#include "worker/server/images/prompt_images.h"
#include "worker/server/images/segment_images.h"
#include "worker/server/monitoring/memory_report.h"
#include "worker/server/monitoring/metrics.h"
#include "worker/server/monitoring/model_info.h"
#include "worker/server/openapi.h"
#include "worker/server/page/home_page.h"
#include "worker/server/serving/server_context.h"
#include "worker/server/tasks/classify.h"
#include "worker/server/tasks/fill_mask.h"
#include "worker/server/tasks/forward_tensors.h"
#include "worker/server/tasks/question_answering.h"
#include "worker/server/tasks/text_rows.h"
#include "worker/server/tasks/tokenize.h"
#include "worker/server/wire/messages.h"
#include "worker/server/wire/messages_form.h"
#include "worker/server/wire/response_store.h"
#include "worker/server/wire/responses.h"

#include "base/log.h"

namespace pm::server {
namespace {

using comm::RankState;
using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

uint64_t device_random() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

int64_t system_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Payload limits for tensors of /forward, for images in base64 and for audio.
constexpr size_t max_tensor_bytes = 4 << 20, max_image_bytes = 24 << 20, max_audio_bytes = 32 << 20;
constexpr int max_decoders = 4;

ApiOptions with_defaults(ApiOptions options) {
  const Capabilities& can = options.capabilities;
  if (can.images)
    options.http.payload_limit = std::max(options.http.payload_limit, max_image_bytes);
  else if (can.extractor)
    options.http.payload_limit = std::max(options.http.payload_limit, max_audio_bytes);
  else if (can.task != policy::Task::Generate)
    options.http.payload_limit = std::max(options.http.payload_limit, max_tensor_bytes);
  if (!options.unix_time) options.unix_time = system_seconds;
  if (!options.random) options.random = device_random;
  return options;
}

http::Response text_response(const std::string& type, const std::string& body) {
  http::Response response;
  response.content_type = type;
  response.body = body;
  return response;
}

std::string hexadecimal(uint64_t value) {
  char text[9];
  std::snprintf(text, sizeof text, "%08x", static_cast<unsigned>(value));
  return text;
}

}  // namespace

struct ApiServer::Impl {
  Impl(ApiOptions o, engine::Engine& e, const Tokenizer* tokenizer, Plan p);
  void add_routes();
  http::Options with_gate(http::Options http);
  http::Response answer(const http::Request& request);
  void log(const http::Request& request, const AccessLogEntry& access, int status,
           steady_clock::time_point start) const;
  std::shared_ptr<void> admit();
  std::shared_ptr<void> acquire_decoder();
  std::string refusal() const;  ///< why nothing is generated now, as an error's code; "" when serving
  json model_json(const std::string& name) const;
  json card() const;
  bool asks_page(const http::Request&) const;
  http::Response root(const RoutedRequest&) const;
  http::Response models(const RoutedRequest&) const;
  http::Response model(const RoutedRequest&) const;
  http::Response health() const;
  http::Response metrics_text() const;

  const ApiOptions options;
  engine::Engine& engine;
  const Plan plan;
  const int64_t started;
  std::atomic<bool> draining{false}, refusing{false}, stopping{false};
  InFlightCounter open;                              ///< requests that use the model
  std::counting_semaphore<> decoders{max_decoders};  ///< limits images and audio that are decoded concurrently
  RequestMetrics metrics;
  ResponseStore responses;
  ImageRowCache image_rows;
  ServerContext context;
  Router router;
  std::string document, page;  ///< /openapi.json and /docs
  http::Server http;           ///< last: its threads use all above
};

ApiServer::Impl::Impl(ApiOptions o, engine::Engine& e, const Tokenizer* tokenizer, Plan p)
    : options(with_defaults(std::move(o))),
      engine(e),
      plan(std::move(p)),
      started(options.unix_time()),
      context{engine,
              tokenizer,
              options.prompt_tokenizer ? options.prompt_tokenizer : tokenizer,
              metrics,
              options.names,
              plan.sequence_length,
              options.eos,
              options.defaults,
              options.random,
              options.unix_time,
              stopping,
              [this] { return admit(); },
              options.capabilities,
              [this] { return acquire_decoder(); },
              options.chat_template,
              options.decoder_start,
              options.http.limits.write,
              static_cast<size_t>(plan.step_tokens),
              options.entity_tokenizer,
              options.replies ? &*options.replies : nullptr,
              options.strict_requests,
              &responses,
              find_content_form(options.chat_template, tokenizer, options.capabilities),
              &image_rows,
              options.media_folder,
              options.fetch_media},
      http(with_gate(options.http), hexadecimal(options.random()),
           [this](const http::Request& request) { return answer(request); }) {
  add_routes();
}

void ApiServer::Impl::add_routes() {
  const auto asks = [this](const char* path, http::Response (*handler)(const ServerContext&, const RoutedRequest&),
                           Operation operation) {
    router.add(
        "POST", path, [this, handler](const RoutedRequest& call) { return handler(context, call); },
        std::move(operation));
  };
  router.add("GET", "/v1/models", [this](const RoutedRequest& call) { return models(call); }, describe_models());
  router.add("GET", "/v1/models/*", [this](const RoutedRequest& call) { return model(call); }, describe_model());
  asks("/v1/completions", create_completion, describe_completion(context));
  asks("/v1/chat/completions", create_chat_completion, describe_chat_completion(context));
  asks("/v1/messages", create_message, describe_message(context));
  asks("/v1/messages/count_tokens", count_message_tokens, describe_message_tokens(context));
  asks("/v1/responses", create_response, describe_response(context));
  asks("/v1/responses/input_tokens", count_response_tokens, describe_response_tokens(context));
  router.add(
      "GET", "/v1/responses/*/input_items",
      [this](const RoutedRequest& call) { return list_input_items(context, call); }, describe_input_items());
  router.add(
      "GET", "/v1/responses/*", [this](const RoutedRequest& call) { return get_response(context, call); },
      describe_get_response());
  router.add(
      "DELETE", "/v1/responses/*", [this](const RoutedRequest& call) { return delete_response(context, call); },
      describe_delete_response());
  asks("/generate", generate, describe_generate(context));
  router.add(
      "GET", "/generate_text/*", [this](const RoutedRequest& call) { return generate_text(context, call); },
      describe_generate_text(context), true);
  asks("/v1/embeddings", create_embeddings, describe_embeddings(context));
  asks("/embed", embed_audio, describe_audio_embedding(context));
  asks("/v1/audio/transcriptions", transcribe, describe_transcription(context));
  asks("/v1/audio/translations", translate, describe_translation(context));
  asks("/v1/audio/classifications", classify_audio, describe_audio_classification(context));
  asks("/classify", classify, describe_classify(context));
  asks("/detect", detect, describe_detect(context));
  asks("/segment", segment, describe_segment(context));
  asks("/fill-mask", fill_mask, describe_fill_mask(context));
  asks("/question-answering", question_answering, describe_question_answering(context));
  asks("/similarity", similarity, describe_similarity(context));
  for (const char* path : {"/rerank", "/v1/rerank"}) asks(path, rerank, describe_rerank(context));
  asks("/embed_sparse", embed_sparse, describe_embed_sparse(context));
  for (const char* path : {"/score", "/v1/score"}) asks(path, score, describe_score(context));
  asks("/forward", forward_tensors, describe_forward(context));
  asks("/tokenize", tokenize, describe_tokenize(context));
  asks("/detokenize", detokenize, describe_detokenize(context));
  if (options.adapters.pool && !options.adapters.root.empty()) {
    router.add(
        "POST", "/v1/load_lora_adapter",
        [this](const RoutedRequest& call) { return load_lora_adapter(context, options.adapters, call); },
        describe_load_lora_adapter());
    router.add(
        "POST", "/v1/unload_lora_adapter",
        [this](const RoutedRequest& call) { return unload_lora_adapter(context, options.adapters, call); },
        describe_unload_lora_adapter());
  }
  router.add("GET", "/", [this](const RoutedRequest& call) { return root(call); }, describe_card());
  router.add(
      "GET", "/version", [](const RoutedRequest&) { return json_response({{"version", PM_VERSION}}); },
      describe_version());
  router.add("GET", "/health", [this](const RoutedRequest&) { return health(); }, describe_health());
  router.add("GET", "/metrics", [this](const RoutedRequest&) { return metrics_text(); }, describe_metrics());
  router.add("GET", "/plan", [this](const RoutedRequest&) { return json_response(to_json(plan)); }, describe_plan());
  router.add(
      "GET", "/memory",
      [this](const RoutedRequest& call) { return memory_response(call.request, plan, options.status_table.get()); },
      describe_memory());
  router.add(
      "GET", "/openapi.json", [this](const RoutedRequest&) { return text_response("application/json", document); },
      describe_document());
  router.add(
      "GET", "/docs", [this](const RoutedRequest&) { return text_response("text/html; charset=utf-8", page); },
      describe_page());
  const json openapi =
      openapi_document(router, options.capabilities,
                       {options.names.first(), PM_VERSION, options.keys != nullptr, options.http.payload_limit});
  document = openapi.dump(-1, ' ', false, json::error_handler_t::replace);
  page = openapi_page(openapi);
}

/// Adds the forms of errors, and the check of API keys, which runs before a body is read.
http::Options ApiServer::Impl::with_gate(http::Options http) {
  http.shape_error = [](const ApiError& error, const http::Request& request, http::Response& response) {
    if (!is_messages_path(request.path)) return;
    response.body = messages_error_body(error, request.id);
    response.headers.emplace_back("request-id", request.id);
  };
  if (!options.keys) return http;
  http.gate = [this](const http::Request& request) -> std::optional<ApiError> {
    if (is_public_path(request.path) || asks_page(request)) return std::nullopt;
    const std::string given = request.header("authorization"), key = request.header("x-api-key");
    if (options.keys->allow(given) || (!key.empty() && options.keys->allow("Bearer " + key))) return std::nullopt;
    const std::string forms = "\"Authorization: Bearer KEY\" or \"x-api-key: KEY\"";
    const ApiError error = given.empty() && key.empty()
                               ? ApiError(401, "missing_api_key", "an API key is needed: send it as " + forms)
                               : ApiError(401, "invalid_api_key", "the API key is unknown, or not sent as " + forms);
    metrics.rejected(error.code);
    log(request, {}, error.status, steady_clock::now());
    return error;
  };
  return http;
}

http::Response ApiServer::Impl::answer(const http::Request& request) {
  const auto start = steady_clock::now();
  auto access = std::make_shared<AccessLogEntry>();
  try {
    auto response = router.route(request, access);
    if (!response.stream) {
      log(request, *access, response.status, start);
      return response;
    }
    response.stream = [this, access, start, id = request.id, client = request.client_id, method = request.method,
                       write = std::move(response.stream)](http::Stream& stream) {
      write(stream);
      log({.id = id, .client_id = client, .method = method}, *access, 200, start);
    };
    return response;
  } catch (const std::exception& exception) {
    const ApiError error = as_api_error(exception);
    metrics.rejected(error.code);
    log(request, *access, error.status, start);
    throw;
  }
}

void ApiServer::Impl::log(const http::Request& request, const AccessLogEntry& access, int status,
                          steady_clock::time_point start) const {
  LOG(INFO) << "id=" << request.id << (request.client_id.empty() ? "" : " client_id=") << request.client_id
            << " route=\"" << request.method << " " << access.route << "\" status=" << status
            << " seconds=" << std::chrono::duration<double>(steady_clock::now() - start).count()
            << " tokens=" << access.tokens;
}

std::string ApiServer::Impl::refusal() const {
  const bool ending = stopping || refusing;
  if (!options.status_table) return ending ? "draining" : "";
  bool all = true;
  for (int r = 0; r < options.status_table->size(); ++r) {
    const RankState state = state_of(options.status_table->rank(r));
    if (state == RankState::Failed) return "rank_lost";
    all = all && (state == RankState::Ready || state == RankState::Draining);
  }
  if (ending) return "draining";  // after a lost rank: that is the reason, the end that follows is not
  return all ? "" : "loading";
}

/// Admits a request. It is counted before the state is checked, so that either drain() sees the request or the request
/// sees the drain.
std::shared_ptr<void> ApiServer::Impl::admit() {
  auto counted = open.enter();
  const std::string code = refusal();
  if (code == "draining")
    throw unavailable(code, "the server is shutting down; retry, and another replica takes the request");
  if (code == "rank_lost") throw unavailable(code, "a rank of the model was lost; the replica restarts", 5);
  if (code == "loading")
    throw unavailable(code, "the model is loading; GET /memory and the admin port's /status show the progress", 5);
  return counted;
}

/// Waits for a free decoder. The wait is bounded because the limits of a file bound its decoding time.
std::shared_ptr<void> ApiServer::Impl::acquire_decoder() {
  decoders.acquire();
  return {this, [](void* self) { static_cast<Impl*>(self)->decoders.release(); }};
}

/// Returns the model information of GET /.
json ApiServer::Impl::card() const {
  const Capabilities& can = options.capabilities;
  return {{"model", options.names.first()}, {"architecture", can.architecture},           {"task", to_string(can.task)},
          {"kind", to_string(can.kind)},    {"max_model_len", max_input_tokens(context)}, {"routes", can.routes()}};
}

/// Returns whether the request is a browser's for the page. It may have no API key, for its user enters that there.
bool ApiServer::Impl::asks_page(const http::Request& request) const {
  return options.page && request.method == "GET" && request.path == "/" && wants_page(request);
}

/// Returns the page to a browser and the model's description to other clients.
http::Response ApiServer::Impl::root(const RoutedRequest& call) const {
  if (!asks_page(call.request)) return json_response(card());
  if (options.keys && !options.keys->allow(call.request.header("authorization"))) return key_page();
  return home_page({options.names.first(), options.capabilities, plan, options.status_table.get(), engine.statistics(),
                    refusal(), router.routes()});
}

json ApiServer::Impl::model_json(const std::string& name) const {
  const std::shared_ptr<const engine::Adapter> adapter = options.names.adapter(name);
  return {{"id", name},
          {"root", adapter ? adapter->path : name},
          {"parent", adapter ? json(options.names.first()) : json()},
          {"object", "model"},
          {"created", started},
          {"owned_by", "parallelmodel"},
          {"max_model_len", max_input_tokens(context)},
          {"task", to_string(options.capabilities.task)},
          {"architecture", options.capabilities.architecture},
          {"routes", options.capabilities.routes()}};
}

http::Response ApiServer::Impl::models(const RoutedRequest&) const {
  json all = json::array();
  for (const std::string& name : options.names.with_adapters()) all.push_back(model_json(name));
  return json_response({{"object", "list"}, {"data", std::move(all)}});
}

http::Response ApiServer::Impl::model(const RoutedRequest& call) const {
  const std::string requested = percent_decode(call.path_suffix);
  options.names.check(requested);
  return json_response(model_json(requested));
}

http::Response ApiServer::Impl::health() const {
  const std::string why = draining ? "draining" : refusal();
  return json_response({{"status", why.empty() ? "serving" : why}}, why.empty() ? 200 : 503);
}

http::Response ApiServer::Impl::metrics_text() const {
  http::Response response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  std::string shared = metrics.text() + engine_metrics(engine.statistics(), options.capacity);
  if (const AdapterPool* pool = options.adapters.pool)
    shared += adapter_metrics(pool->in_use(), pool->slots(), std::chrono::system_clock::now());
  if (options.capabilities.prompt_images) {
    const ImageRowCache::Counts counts = image_rows.counts();
    shared += image_metrics(counts.queries, counts.hits);
  }
  response.body = renamed_metrics(shared, options.metric_names, options.names.first()) +
                  rank_metrics(plan, options.status_table.get(), steady_clock::now());
  if (options.steps) response.body += options.steps->text();
  if (options.collectives) response.body += collective_metrics(options.collectives());
  return response;
}

ApiServer::ApiServer(ApiOptions options, engine::Engine& engine, const Tokenizer* tokenizer, Plan plan)
    : impl_(std::make_unique<Impl>(std::move(options), engine, tokenizer, std::move(plan))) {}

ApiServer::~ApiServer() { stop(); }

void ApiServer::start() {
  impl_->http.start();
  LOG(INFO) << "serving " << impl_->options.names.first() << " on port " << bound_port();
}

int ApiServer::bound_port() const { return impl_->http.bound_port(); }

bool ApiServer::drain(milliseconds limit) {
  const auto end = steady_clock::now() + limit;
  impl_->draining = true;
  if (const auto& status_table = impl_->options.status_table) {
    auto expected = static_cast<uint32_t>(RankState::Ready);
    status_table->rank(0).state.compare_exchange_strong(expected, static_cast<uint32_t>(RankState::Draining));
  }
  impl_->http.close_connections();
  LOG(INFO) << "draining: requests are taken for " << impl_->options.accept_while_draining.count() << " ms more";
  std::this_thread::sleep_for(std::min(impl_->options.accept_while_draining, limit));
  impl_->refusing = true;
  const auto left = std::max(milliseconds(0), std::chrono::duration_cast<milliseconds>(end - steady_clock::now()));
  const bool finished = impl_->open.wait_until_none(left);
  LOG(INFO) << (finished ? "drained" : "requests are still running at the end of the drain");
  return finished;
}

void ApiServer::stop() {
  impl_->stopping = true;
  impl_->http.stop();
}

}  // namespace pm::server
