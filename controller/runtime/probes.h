// SPDX-License-Identifier: Apache-2.0
// Serves the HTTP endpoints of the kubelet and Prometheus: /healthz, /readyz, /metrics.
#pragma once
#include <prometheus/registry.h>

#include <functional>
#include <memory>

#include "controller/client/transport.h"

namespace pm::k8s {

/// Listens from construction to destruction.
class Probes {
 public:
  /// Ports may be 0 (a free one). `healthy` and `ready` are asked on the server's threads and must not block. Throws
  /// ConfigError.
  Probes(const std::string& address, int probe_port, int metrics_port, prometheus::Registry& registry,
         std::function<bool()> healthy, std::function<bool()> ready);
  int probe_port() const { return probes_.port(); }
  int metrics_port() const { return metrics_.port(); }

 private:
  HttpServer probes_, metrics_;
};

}  // namespace pm::k8s
