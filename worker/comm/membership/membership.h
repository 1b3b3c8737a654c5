// SPDX-License-Identifier: Apache-2.0
// Connects one rank process to every other rank of its group, on the same node or on others.
#pragma once
#include <c10/core/Device.h>

#include <chrono>
#include <memory>
#include <string>

#include "worker/comm/channel.h"
#include "worker/comm/communicator.h"
#include "worker/comm/membership/status_table.h"

namespace pm::comm {

class Mesh;

/// The position of a rank in the group. `segment` and the status table belong to its node, which holds ranks first,
/// ..., first + count - 1 of `size`.
struct RankPlacement {
  std::string segment;
  int rank = 0, size = 1;
  int first = 0, count = 1;
  int64_t replica_generation = 0;
  std::chrono::milliseconds deadline{30'000};  ///< limit of a wait inside a step
  at::Device device = at::kCPU;                ///< device of this rank
  bool is_single_node() const { return count == size; }
  bool is_local(int other) const { return other >= first && other < first + count; }
};

class Membership {
 public:
  /// In a group over several nodes it listens on a free port and writes the port to the status table; the launcher
  /// writes the addresses of other ranks there.
  Membership(const RankPlacement&, std::shared_ptr<StatusTable>);
  ~Membership();
  /// Returns the communicator of all ranks. Must be used after connect_all() only.
  const std::shared_ptr<Communicator>& communicator() const { return communicator_; }
  /// Returns when this rank has a connection to each other rank; has no deadline. Throws Error{RankLost} when the group
  /// is aborted.
  void connect_all();
  /// Opens the channel between rank 0 and `follower`, one of which is this rank. Must be called after connect_all().
  std::shared_ptr<Channel> channel(int follower, Direction direction = Direction::ToFollower) const;

 private:
  const RankPlacement placement_;
  std::shared_ptr<Mesh> mesh_;  ///< only in a group over several nodes
  std::shared_ptr<Communicator> communicator_;
};

}  // namespace pm::comm
