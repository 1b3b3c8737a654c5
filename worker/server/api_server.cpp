// See api_server.h.
#include "worker/server/api_server.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <semaphore>
#include <thread>

#include "worker/server/about.h"
#include "worker/server/api_error.h"
#include "worker/server/chat.h"
#include "worker/server/completions.h"
#include "worker/server/generate.h"
#include "worker/server/memory_report.h"
#include "worker/server/metrics.h"
#include "worker/server/open_count.h"
#include "worker/server/openapi.h"
#include "worker/server/percent.h"
#include "worker/server/router.h"
#include "worker/server/routes.h"
#include "worker/server/task_request.h"
#include "worker/server/text_rows.h"
#include "worker/base/log.h"

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

/// What a body may need: tensors of /forward, images in base64.
constexpr size_t kTensorBytes = 4 << 20, kImageBytes = 24 << 20;
constexpr int kDecoders = 4;

ApiOptions with_defaults(ApiOptions options) {
  const Abilities& can = options.abilities;
  if (can.images) options.http.payload_limit = std::max(options.http.payload_limit, kImageBytes);
  else if (can.task != "generate") options.http.payload_limit = std::max(options.http.payload_limit, kTensorBytes);
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
  void log(const http::Request& request, const Access& access, int status, steady_clock::time_point start) const;
  std::shared_ptr<void> admit();
  std::shared_ptr<void> decoding();
  std::string refusal() const;          ///< why nothing is generated now, as an error's code; "" when serving
  json model_json() const;
  json card() const;
  http::Response models(const Call&) const;
  http::Response model(const Call&) const;
  http::Response health() const;
  http::Response metrics_text() const;

  const ApiOptions options;
  engine::Engine& engine;
  const Plan plan;
  const int64_t started;
  std::atomic<bool> draining{false}, refusing{false}, stopping{false};
  OpenCount open;                       ///< requests that use the model
  std::counting_semaphore<> decoders{kDecoders};   ///< images decoded at once
  RequestMetrics metrics;
  Serving serving;
  Router router;
  std::string document, page;           ///< /openapi.json and /docs
  http::Server http;                    ///< last: its threads use all above
};

ApiServer::Impl::Impl(ApiOptions o, engine::Engine& e, const Tokenizer* tokenizer, Plan p)
    : options(with_defaults(std::move(o))), engine(e), plan(std::move(p)), started(options.unix_time()),
      serving{engine, tokenizer, metrics, options.model, plan.sequence_length, options.eos, options.defaults, options.random, options.unix_time,
              stopping, [this] { return admit(); }, options.abilities, [this] { return decoding(); }, options.chat_template,
              options.decoder_start, options.http.limits.write},
      http(with_gate(options.http), hexadecimal(options.random()), [this](const http::Request& request) { return answer(request); }) {
  add_routes();
}

void ApiServer::Impl::add_routes() {
  const auto asks = [this](const char* path, http::Response (*handler)(const Serving&, const Call&), Operation operation) {
    router.add("POST", path, [this, handler](const Call& call) { return handler(serving, call); }, std::move(operation));
  };
  router.add("GET", "/v1/models", [this](const Call& call) { return models(call); }, describe_models());
  router.add("GET", "/v1/models/*", [this](const Call& call) { return model(call); }, describe_model());
  asks("/v1/completions", create_completion, describe_completion(serving));
  asks("/v1/chat/completions", create_chat_completion, describe_chat_completion(serving));
  asks("/generate", generate, describe_generate(serving));
  router.add("GET", "/generate_text/*", [this](const Call& call) { return generate_text(serving, call); }, describe_generate_text(serving), true);
  asks("/v1/embeddings", create_embeddings, describe_embeddings(serving));
  asks("/classify", classify, describe_classify(serving));
  asks("/fill-mask", fill_mask, describe_fill_mask(serving));
  asks("/question-answering", question_answering, describe_question_answering(serving));
  asks("/similarity", similarity, describe_similarity(serving));
  for (const char* path : {"/rerank", "/v1/rerank"}) asks(path, rerank, describe_rerank(serving));
  asks("/forward", forward_tensors, describe_forward(serving));
  asks("/tokenize", tokenize, describe_tokenize(serving));
  asks("/detokenize", detokenize, describe_detokenize(serving));
  router.add("GET", "/", [this](const Call&) { return json_response(card()); }, describe_card());
  router.add("GET", "/version", [](const Call&) { return json_response({{"version", PM_VERSION}}); }, describe_version());
  router.add("GET", "/health", [this](const Call&) { return health(); }, describe_health());
  router.add("GET", "/metrics", [this](const Call&) { return metrics_text(); }, describe_metrics());
  router.add("GET", "/plan", [this](const Call&) { return json_response(to_json(plan)); }, describe_plan());
  router.add("GET", "/memory", [this](const Call& call) { return memory_response(call.request, plan, options.board.get()); }, describe_memory());
  router.add("GET", "/openapi.json", [this](const Call&) { return text_response("application/json", document); }, describe_document());
  router.add("GET", "/docs", [this](const Call&) { return text_response("text/html; charset=utf-8", page); }, describe_page());
  const json openapi = openapi_document(router, options.abilities, {options.model, PM_VERSION, options.keys != nullptr, options.http.payload_limit});
  document = openapi.dump(-1, ' ', false, json::error_handler_t::replace);
  page = openapi_page(openapi);
}

/// Keys are asked for before a body is read.
http::Options ApiServer::Impl::with_gate(http::Options http) {
  if (!options.keys) return http;
  http.gate = [this](const http::Request& request) -> std::optional<ApiError> {
    if (open_to_all(request.path)) return std::nullopt;
    const std::string given = request.header("authorization");
    if (options.keys->allow(given)) return std::nullopt;
    const ApiError error = given.empty() ? ApiError(401, "missing_api_key", "an API key is needed: send it as \"Authorization: Bearer KEY\"")
                                         : ApiError(401, "invalid_api_key", "the API key is not one of this server's, or not sent as \"Authorization: Bearer KEY\"");
    metrics.rejected(error.code);
    log(request, {}, error.status, steady_clock::now());
    return error;
  };
  return http;
}

http::Response ApiServer::Impl::answer(const http::Request& request) {
  const auto start = steady_clock::now();
  auto access = std::make_shared<Access>();
  try {
    auto response = router.route(request, access);
    if (!response.stream) {
      log(request, *access, response.status, start);
      return response;
    }
    response.stream = [this, access, start, id = request.id, client = request.client_id, method = request.method, write = std::move(response.stream)](http::Stream& stream) {
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

void ApiServer::Impl::log(const http::Request& request, const Access& access, int status, steady_clock::time_point start) const {
  LOG(INFO) << "id=" << request.id << (request.client_id.empty() ? "" : " client_id=") << request.client_id << " route=\"" << request.method << " " << access.route << "\" status=" << status
            << " seconds=" << std::chrono::duration<double>(steady_clock::now() - start).count() << " tokens=" << access.tokens;
}

std::string ApiServer::Impl::refusal() const {
  const bool ending = stopping || refusing;
  if (!options.board) return ending ? "draining" : "";
  bool all = true;
  for (int r = 0; r < options.board->size(); ++r) {
    const RankState state = state_of(options.board->rank(r));
    if (state == RankState::Failed) return "rank_lost";
    all = all && (state == RankState::Ready || state == RankState::Draining);
  }
  if (ending) return "draining";   // after a lost rank: that is the reason, the end that follows is not
  return all ? "" : "loading";
}

/// Counted before it is looked whether we serve: so drain() either sees the request or the request sees the drain.
std::shared_ptr<void> ApiServer::Impl::admit() {
  auto counted = open.enter();
  const std::string code = refusal();
  if (code == "draining") throw unavailable(code, "the server is shutting down; send the request again, another replica will take it");
  if (code == "rank_lost") throw unavailable(code, "a rank of the model was lost; the group restarts", 5);
  if (code == "loading") throw unavailable(code, "the model is loading; GET /memory and the ops port's /status show how far it is", 5);
  return counted;
}

/// Waits for a place. A decoder's time is bounded by the limits of an image, so the wait is too.
std::shared_ptr<void> ApiServer::Impl::decoding() {
  decoders.acquire();
  return {this, [](void* self) { static_cast<Impl*>(self)->decoders.release(); }};
}

/// What there is to ask.
json ApiServer::Impl::card() const {
  const Abilities& can = options.abilities;
  return {{"model", options.model}, {"architecture", can.architecture}, {"task", can.task}, {"topology", can.topology}, {"max_model_len", longest(serving)},
          {"routes", can.routes()}};
}

json ApiServer::Impl::model_json() const {
  return {{"id", options.model}, {"object", "model"}, {"created", started}, {"owned_by", "parallelmodel"}, {"max_model_len", longest(serving)},
          {"task", options.abilities.task}, {"architecture", options.abilities.architecture}, {"routes", options.abilities.routes()}};
}

http::Response ApiServer::Impl::models(const Call&) const { return json_response({{"object", "list"}, {"data", {model_json()}}}); }

http::Response ApiServer::Impl::model(const Call& call) const {
  const std::string asked = percent_decode(call.rest);
  if (asked != options.model) throw ApiError(404, "model_not_found", "there is no model " + json(asked.substr(0, 200)).dump(-1, ' ', true, json::error_handler_t::replace) + "; this server has: " + options.model, "model");
  return json_response(model_json());
}

http::Response ApiServer::Impl::health() const {
  const std::string why = draining ? "draining" : refusal();
  return json_response({{"status", why.empty() ? "serving" : why}}, why.empty() ? 200 : 503);
}

http::Response ApiServer::Impl::metrics_text() const {
  http::Response response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = metrics.text() + engine_metrics(engine.statistics()) + rank_metrics(plan, options.board.get(), steady_clock::now());
  if (options.steps) response.body += options.steps->text();
  if (options.collectives) response.body += collective_metrics(options.collectives());
  return response;
}

ApiServer::ApiServer(ApiOptions options, engine::Engine& engine, const Tokenizer* tokenizer, Plan plan)
    : impl_(std::make_unique<Impl>(std::move(options), engine, tokenizer, std::move(plan))) {}

ApiServer::~ApiServer() { stop(); }

void ApiServer::start() {
  impl_->http.start();
  LOG(INFO) << "serving " << impl_->options.model << " on port " << bound_port();
}

int ApiServer::bound_port() const { return impl_->http.bound_port(); }

bool ApiServer::drain(milliseconds limit) {
  const auto end = steady_clock::now() + limit;
  impl_->draining = true;
  if (const auto& board = impl_->options.board) {
    auto expected = static_cast<uint32_t>(RankState::Ready);
    board->rank(0).state.compare_exchange_strong(expected, static_cast<uint32_t>(RankState::Draining));
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
