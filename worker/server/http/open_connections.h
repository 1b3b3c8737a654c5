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
  /// `queued` counts the connections that wait for a thread; it must outlive every connection.
  void set_queued(std::function<size_t()> queued) { queued_ = std::move(queued); }
  /// Waits for the next request of a connection.
  Connection::Head await_head(Connection&);
  /// Ends the longest waits for a request, as many as connections are queued and no ended one makes room for. A request
  /// that has arrived is still answered.
  void make_room();
  /// A connection has got a thread. It may be one of those for which make_room() has ended a wait.
  void started();
  /// Ends all waits, and those that begin later.
  void end_waits();

 private:
  void end_longest_waits();

  std::function<size_t()> queued_ = [] { return size_t{0}; };
  std::mutex mutex_;
  size_t ending_ = 0;               ///< waits that were ended for connections which have no thread yet
  std::list<Connection*> waiting_;  ///< the longest wait first; a connection whose wait was ended is not in it
  bool stopping_ = false;
};

}  // namespace pm::server
