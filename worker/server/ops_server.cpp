// See ops_server.h.
#include "worker/server/ops_server.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "worker/server/memory_report.h"
#include "worker/server/metrics.h"
#include "worker/server/router.h"

namespace pm::server {
namespace {

using nlohmann::json;
using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kFetch{500};
constexpr size_t kFetchBytes = 4 << 20;

http::Response json_response(const json& body, int status = 200) {
  http::Response response;
  response.status = status;
  response.body = body.dump(-1, ' ', false, json::error_handler_t::replace);   // a rank's message may be cut inside a character
  return response;
}

}  // namespace

struct OpsServer::Impl {
  explicit Impl(OpsOptions o);
  http::Response probe(const char* name, bool good) const;
  http::Response metrics() const;

  const OpsOptions options;
  Router router;
  http::Server http;   ///< last: its threads use all above
};

OpsServer::Impl::Impl(OpsOptions o)
    : options(std::move(o)), http(options.http, std::to_string(getpid()), [this](const http::Request& request) {
        return router.route(request, std::make_shared<Access>());
      }) {
  router.add("GET", "/live", [this](const Call&) { return probe("live", options.live()); });
  router.add("GET", "/ready", [this](const Call&) { return probe("ready", options.ready()); });
  router.add("GET", "/health", [this](const Call&) { return probe("ready", options.ready()); });
  router.add("GET", "/status", [this](const Call&) {
    return json_response(status_report(options.plan, *options.board, options.incarnation, options.ready(), steady_clock::now()));
  });
  router.add("GET", "/metrics", [this](const Call&) { return metrics(); });
  router.add("GET", "/memory", [this](const Call& call) { return memory_response(call.request, options.plan, options.board.get()); });
}

/// 200 or 503, with the state of the group for the people who curl it.
http::Response OpsServer::Impl::probe(const char* name, bool good) const {
  json body = {{name, good}, {"state", name_of(group_state(*options.board))}};
  for (int r = 0; r < options.board->size(); ++r) {
    const auto& rank = options.board->rank(r);
    if (const auto reason = failure_reason(rank); !reason.empty()) body["failed"].push_back({{"rank", r}, {"reason", reason}, {"message", failure_message(rank)}});
  }
  return json_response(body, good ? 200 : 503);
}

http::Response OpsServer::Impl::metrics() const {
  http::Response response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = rank_metrics(options.plan, options.board.get(), steady_clock::now());
  if (options.rank0_metrics_port > 0)
    if (const auto api = http::get("127.0.0.1", options.rank0_metrics_port, "/metrics", kFetch, kFetchBytes, options.rank0_tls))
      response.body = merge_metrics(response.body, *api);
  return response;
}

OpsServer::OpsServer(OpsOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
OpsServer::~OpsServer() { stop(); }
void OpsServer::start() { impl_->http.start(); }
int OpsServer::bound_port() const { return impl_->http.bound_port(); }
void OpsServer::stop() { impl_->http.stop(); }

}  // namespace pm::server
