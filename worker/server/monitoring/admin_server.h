// SPDX-License-Identifier: Apache-2.0
// The server of a pod's admin port: the launcher answers liveness, readiness, status and metrics from the status table.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "contract/ports.h"
#include "planner/plan.h"
#include "worker/comm/membership/status_table.h"
#include "worker/server/http/http.h"

namespace pm::server {

struct AdminOptions {
  http::Options http{.port = admin_port, .connections = 16, .waiting_connections = 16, .id_prefix = "admin"};
  std::shared_ptr<comm::StatusTable> status_table;
  Plan plan;
  int64_t replica_generation = 0;
  std::string cpu_kernels;  ///< of ranks on CPUs, as /status has them; empty: they run on GPUs
  /// Speculative decoding, as /status has it: "off", its kind, or why the model has none.
  std::string speculation;
  std::function<bool()> ready, live;  ///< called for every probe on threads of the server
  int rank0_metrics_port = 0;         ///< port of the API in this pod, whose metrics are merged; 0: none
  bool rank0_tls = false;             ///< the API uses TLS
};

/// Serves /live, /ready, /health, /status, /metrics and /memory.
class AdminServer {
 public:
  explicit AdminServer(AdminOptions);
  ~AdminServer();
  AdminServer(const AdminServer&) = delete;
  AdminServer& operator=(const AdminServer&) = delete;
  /// Throws Error{PortInUse}.
  void start();
  int bound_port() const;
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pm::server
