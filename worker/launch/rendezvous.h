// What the launchers of a group over several nodes tell each other. Node 0's listens; the others connect to it, retrying each second without end, and it passes on
// what each says. So every node's board shows all ranks: a rank is as old as its last heartbeat was when it was told, plus the time since.
#pragma once
#include <chrono>
#include <memory>
#include <vector>

#include "worker/comm/status.h"
#include "worker/launch/failure.h"
#include "worker/launch/nodes.h"

namespace pm::launch {

/// What another node says, or does by leaving.
struct News {
  enum class Kind { Failed, Stop, Left };
  Kind kind = Kind::Failed;
  int node = 0;
  Failure failure;                     ///< of Failed
};

/// A thread of its own meets the others, mirrors their ranks on the board, and shows them ours ten times a second. Anything may connect to node 0's port: whoever does
/// not greet as a launcher of this incarnation, plan and number of nodes is told so in words and hung up on, five seconds are given for that, and a kilobyte is read.
class Rendezvous {
 public:
  /// Node 0 listens at once, and draws the token that ranks know each other by. Throws Error{Usage, "PortInUse"}. `silence`: when a node that says nothing counts as lost.
  Rendezvous(const Nodes&, std::shared_ptr<comm::StatusBoard>, std::chrono::milliseconds silence);
  /// Says goodbye, which takes half a second at most.
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;
  /// Begins the thread. After the ranks have been forked.
  void start();

  /// Readable when there is news.
  int descriptor() const;
  std::vector<News> news();
  /// Whether all nodes are connected to this one; of another node than 0, whether it is to node 0.
  bool connected() const;
  /// Tells all other nodes why the group ends.
  void tell(const Failure&);
  /// Asks node 0 to drain the group and stop it.
  void ask_to_stop();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;         ///< shared with the thread: a name server may keep that one beyond our end
};

}  // namespace pm::launch
