// SPDX-License-Identifier: Apache-2.0
// Assigns the ranks of a group to its nodes.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>

#include "contract/ports.h"

namespace pm::launch {

struct Nodes {
  int count = 1, index = 0;
  std::string host;            ///< name or address of node 0; only the other nodes use it
  int port = rendezvous_port;  ///< port at which the launcher of node 0 listens for the others
  int64_t replica_generation = 0;
  std::string plan;  ///< digest of the plan, which all nodes must agree on
};

/// The ranks first, ..., first + count - 1 of one node.
struct Slice {
  int first = 0, count = 0;
};

/// Assigns ranks to nodes in order and as equally as whole ranks allow; the last node may hold fewer. The planner
/// assumes the same, and the pods of the operator request it. Valid only where can_partition() is true.
inline Slice partition(int ranks, int nodes, int node) {
  const int each = (ranks + nodes - 1) / nodes, first = std::min(ranks, node * each);
  return {first, std::min(each, ranks - first)};
}
/// Returns true when every node gets a rank.
inline bool can_partition(int ranks, int nodes) {
  return nodes >= 1 && nodes <= ranks && partition(ranks, nodes, nodes - 1).count > 0;
}

}  // namespace pm::launch
