// SPDX-License-Identifier: Apache-2.0
// A small pool of connections for requests other than watches.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "controller/client/transport.h"
#include "controller/core/clock.h"

namespace pm::k8s {

/// Lends each caller a connection of its own. Thread-safe. At most `keep` idle connections stay open, none for longer
/// than a minute, so that a server's or a proxy's idle timeout seldom meets a request.
class ConnectionPool {
 public:
  ConnectionPool(const ClusterConfig& config, const Clock& clock, Deadlines deadlines = {}, size_t keep = 32)
      : config_(config), clock_(clock), deadlines_(deadlines), keep_(keep) {}

  /// An idle connection, or a new one. Throws ConfigError.
  std::unique_ptr<Connection> take();
  /// Returns a connection whose last request succeeded to the pool. A failed connection is destroyed instead.
  void give(std::unique_ptr<Connection>);

 private:
  struct Idle {
    std::unique_ptr<Connection> connection;
    Clock::Steady since;
  };
  const ClusterConfig& config_;
  const Clock& clock_;
  const Deadlines deadlines_;
  const size_t keep_;
  std::mutex mutex_;
  std::vector<Idle> idle_;
};

}  // namespace pm::k8s
