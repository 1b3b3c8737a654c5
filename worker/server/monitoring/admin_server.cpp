// SPDX-License-Identifier: Apache-2.0
#include "worker/server/monitoring/admin_server.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "worker/server/http/router.h"
#include "worker/server/monitoring/memory_report.h"
#include "worker/server/monitoring/metrics.h"

namespace pm::server {
namespace {

using nlohmann::json;
using std::chrono::steady_clock;

constexpr std::chrono::milliseconds fetch_timeout{500};
constexpr size_t max_fetch_bytes = 4 << 20;

http::Response json_response(const json& body, int status = 200) {
  http::Response response;
  response.status = status;
  response.body =
      body.dump(-1, ' ', false, json::error_handler_t::replace);  // a rank's message may be cut inside a character
  return response;
}

}  // namespace

struct AdminServer::Impl {
  explicit Impl(AdminOptions o);
  http::Response probe(const char* name, bool good) const;
  http::Response metrics() const;

  const AdminOptions options;
  Router router;
  http::Server http;  ///< last: its threads use all above
};

AdminServer::Impl::Impl(AdminOptions o)
    : options(std::move(o)), http(options.http, std::to_string(getpid()), [this](const http::Request& request) {
        return router.route(request, std::make_shared<AccessLogEntry>());
      }) {
  router.add("GET", "/live", [this](const RoutedRequest&) { return probe("live", options.live()); });
  router.add("GET", "/ready", [this](const RoutedRequest&) { return probe("ready", options.ready()); });
  router.add("GET", "/health", [this](const RoutedRequest&) { return probe("ready", options.ready()); });
  router.add("GET", "/status", [this](const RoutedRequest&) {
    json body = to_json(status_report(options.plan, *options.status_table, options.replica_generation, options.ready(),
                                      steady_clock::now()));
    if (!options.cpu_kernels.empty()) body["cpuKernels"] = options.cpu_kernels;
    if (options.plan.kv_precision) body["kvPrecision"] = name_of(*options.plan.kv_precision);
    if (!options.speculation.empty()) body["speculation"] = options.speculation;
    return json_response(body);
  });
  router.add("GET", "/metrics", [this](const RoutedRequest&) { return metrics(); });
  router.add("GET", "/memory", [this](const RoutedRequest& call) {
    return memory_response(call.request, options.plan, options.status_table.get());
  });
}

/// Returns 200 or 503, with the state of the replica and the failed ranks in the body.
http::Response AdminServer::Impl::probe(const char* name, bool good) const {
  json body = {{name, good}, {"state", name_of(group_state(*options.status_table))}};
  for (int r = 0; r < options.status_table->size(); ++r) {
    const auto& rank = options.status_table->rank(r);
    if (const auto reason = failure_reason(rank); !reason.empty())
      body["failed"].push_back({{"rank", r}, {"reason", reason}, {"message", failure_message(rank)}});
  }
  return json_response(body, good ? 200 : 503);
}

http::Response AdminServer::Impl::metrics() const {
  http::Response response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = rank_metrics(options.plan, options.status_table.get(), steady_clock::now());
  if (options.rank0_metrics_port > 0)
    if (const auto api = http::get("127.0.0.1", options.rank0_metrics_port, "/metrics", fetch_timeout, max_fetch_bytes,
                                   options.rank0_tls))
      response.body = merge_metrics(response.body, *api);
  return response;
}

AdminServer::AdminServer(AdminOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
AdminServer::~AdminServer() { stop(); }
void AdminServer::start() { impl_->http.start(); }
int AdminServer::bound_port() const { return impl_->http.bound_port(); }
void AdminServer::stop() { impl_->http.stop(); }

}  // namespace pm::server
