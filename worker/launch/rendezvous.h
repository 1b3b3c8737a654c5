// SPDX-License-Identifier: Apache-2.0
// Connects the launchers of a group over several nodes. The launcher of node 0 listens; the others connect to it,
// retrying each second without end, and it forwards the messages of each. The status table of every node therefore
// shows all ranks: the age of a rank is the age of its last heartbeat when it was reported, plus the time since.
#pragma once
#include <chrono>
#include <memory>
#include <vector>

#include "worker/comm/membership/status_table.h"
#include "worker/launch/failure.h"
#include "worker/launch/nodes.h"

namespace pm::launch {

/// An event of another node.
struct PeerEvent {
  enum class Kind { Failed, Stop, Left };
  Kind kind = Kind::Failed;
  int node = 0;
  Failure failure;  ///< only for Failed
};

/// Connects to the other launchers on a thread of its own, mirrors their ranks in the status table, and sends them the
/// ranks of this node ten times a second. Any peer may connect to the port of node 0: one that does not greet as a
/// launcher of this replica generation, plan and number of nodes gets a refusal with the cause and is disconnected. It
/// has five seconds for its hello, of which at most a kilobyte is read.
class Rendezvous {
 public:
  /// Node 0 listens at once and generates the token by which ranks authenticate each other. Throws Error{PortInUse}. A
  /// node that sends nothing for `silence` counts as lost.
  Rendezvous(const Nodes&, std::shared_ptr<comm::StatusTable>, std::chrono::milliseconds silence);
  /// Sends a goodbye, which takes half a second at most.
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;
  /// Starts the thread. Must be called after the ranks have been forked.
  void start();

  /// Returns a descriptor that is readable while there are events.
  int descriptor() const;
  std::vector<PeerEvent> take_events();
  /// Returns true when all nodes are connected to node 0; on another node, when it is connected to node 0.
  bool connected() const;
  /// Reports to all other nodes why the group ends.
  void send_failure(const Failure&);
  /// Asks node 0 to drain the group and stop it.
  void request_stop();

 private:
  struct Impl;
  std::shared_ptr<Impl>
      impl_;  ///< shared with the thread, which a name server may keep busy beyond the end of this object
};

}  // namespace pm::launch
