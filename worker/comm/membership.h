// One rank process's membership of its group: how it talks to every other rank, wherever that one is.
#pragma once
#include <c10/core/Device.h>

#include <chrono>
#include <memory>
#include <string>

#include "worker/comm/channel.h"
#include "worker/comm/communicator.h"
#include "worker/comm/status.h"

namespace pm::comm {

class Mesh;

/// Where a rank is: `segment` and the status board are its node's, which holds ranks first, ..., first + count - 1 of `size`.
struct Place {
  std::string segment;
  int rank = 0, size = 1;
  int first = 0, count = 1;
  int64_t incarnation = 0;
  std::chrono::milliseconds deadline{30'000};   ///< of a wait inside a step
  at::Device device = at::kCPU;                 ///< this rank's
  bool one_node() const { return count == size; }
  bool here(int other) const { return other >= first && other < first + count; }
};

class Membership {
 public:
  /// Of a group over several nodes: listens, and shows the port on the board; where others listen the launcher writes there.
  Membership(const Place&, std::shared_ptr<StatusBoard>);
  ~Membership();
  /// Of all ranks. To be used after meet().
  const std::shared_ptr<Communicator>& communicator() const { return communicator_; }
  /// Returns when this rank has a connection to each other; has no deadline. Throws Error{RankLost} when the group is aborted.
  void meet();
  /// Between rank 0 and `follower`, one of which is this rank. After meet().
  std::shared_ptr<Channel> channel(int follower, Way way = Way::Out) const;

 private:
  const Place place_;
  std::shared_ptr<Mesh> mesh_;         ///< of a group over several nodes
  std::shared_ptr<Communicator> communicator_;
};

}  // namespace pm::comm
