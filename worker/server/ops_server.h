// The ops port of a pod: liveness, readiness, status and metrics, answered by the launcher from the status board alone.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "planner/plan.h"
#include "worker/comm/status.h"
#include "worker/server/http.h"

namespace pm::server {

struct OpsOptions {
  http::Options http{.port = 8001, .connections = 16, .waiting_connections = 16, .id_prefix = "ops"};
  std::shared_ptr<comm::StatusBoard> board;
  Plan plan;
  int64_t incarnation = 0;
  std::function<bool()> ready, live;       ///< asked at every probe; from threads of the server
  int rank0_metrics_port = 0;              ///< of the API in this pod: its metrics are joined to ours; 0: none
  bool rank0_tls = false;                  ///< the API speaks TLS
};

/// /live /ready /health /status /metrics /memory.
class OpsServer {
 public:
  explicit OpsServer(OpsOptions);
  ~OpsServer();
  OpsServer(const OpsServer&) = delete;
  OpsServer& operator=(const OpsServer&) = delete;
  /// Throws Error{Usage, "PortInUse"}.
  void start();
  int bound_port() const;
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pm::server
