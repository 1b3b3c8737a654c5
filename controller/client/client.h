// SPDX-License-Identifier: Apache-2.0
// The client of an API server: credentials, retries, pooled connections, watches.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>

#include "controller/client/client_metrics.h"
#include "controller/client/connection_pool.h"
#include "controller/client/rate_limiter.h"
#include "controller/client/token.h"
#include "controller/core/api.h"

namespace pm::k8s {

/// Thread-safe. Requests share a pool of connections; each watch has one of its own.
class Client final : public Api, public WatchApi {
 public:
  Client(ClusterConfig config, const Clock& clock, prometheus::Registry& registry, Deadlines deadlines = {},
         RateLimit limit = {.qps = 0});

  /// Sends a write only while `may_write()` is true. It is called immediately before each attempt, after the waits of
  /// the rate limiter and of Retry-After. Call guard() before the first request.
  void guard(std::function<bool()> may_write) { may_write_ = std::move(may_write); }

  /// Retries as retry.h defines; every attempt takes a token of the rate limiter and has 30 s, or the deadlines
  /// of the constructor.
  Response send(const Request&) override;
  /// Ends with an error when not even a bookmark arrived for 90 s: API servers send bookmarks each minute.
  std::optional<ApiError> watch(const Request&, const std::function<bool(WatchEvent&&)>& sink,
                                std::stop_token stop) override;

  /// Ends all requests in flight and refuses further ones; for the last seconds of a shutdown.
  void abort() { abort_.request_stop(); }
  const ClusterConfig& config() const { return config_; }

 private:
  bool wait_for_token(const Request&);
  HttpReply attempt(const HttpRequest&);
  HttpRequest prepare(const Request&);
  std::optional<ApiError> end_of_watch(const HttpReply&, const std::optional<ApiError>& in_stream, const WatchDecoder&);

  const ClusterConfig config_;
  const Clock& clock_;
  ClientMetrics metrics_;
  Token token_;
  ConnectionPool pool_;
  RateLimiter limiter_;
  std::function<bool()> may_write_ = [] { return true; };
  std::stop_source abort_;
};

}  // namespace pm::k8s
