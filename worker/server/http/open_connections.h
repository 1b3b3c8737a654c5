// SPDX-License-Identifier: Apache-2.0
// The connections of a server that wait for their next request. Clients and gateways keep connections open for minutes,
// each of which occupies a thread; so where a new connection finds no thread, the one that has waited longest is
// closed.
#pragma once
#include <functional>
#include <list>
#include <mutex>

#include "worker/server/http/connection.h"

namespace pm::server {

class OpenConnections {
 public:
  /// `is_crowded` returns whether connections wait for a thread; it must outlive every connection.
  void set_crowded(std::function<bool()> is_crowded) { is_crowded_ = std::move(is_crowded); }
  /// Waits for the next request of a connection.
  Connection::Head await_head(Connection&);
  /// Ends the longest wait for a request. A request that has arrived is still answered.
  void end_longest_wait();
  /// Ends all waits, and those that begin later.
  void end_waits();

 private:
  void end_first();

  std::function<bool()> is_crowded_ = [] { return false; };
  std::mutex mutex_;
  std::list<Connection*> waiting_;  ///< the longest wait first; a connection whose wait was ended is not in it
  bool stopping_ = false;
};

}  // namespace pm::server
