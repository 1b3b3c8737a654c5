// The nodes of a group and which ranks each holds.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>

namespace pm::launch {

struct Nodes {
  int count = 1, here = 0;
  std::string host;                    ///< of node 0, a name or an address; only others use it
  int port = 29500;                    ///< where node 0's launcher listens for the others
  int64_t incarnation = 0;
  std::string plan;                    ///< what all nodes have to agree on, in a few characters
};

/// Ranks first, ..., first + count - 1.
struct Dealt { int first = 0, count = 0; };

/// Ranks are dealt to nodes in order and as equally as whole ranks allow; the last node may hold fewer, as the planner assumes and the controller's pods ask for.
/// Meaningful where each node gets one: see can_deal().
inline Dealt deal(int ranks, int nodes, int node) {
  const int each = (ranks + nodes - 1) / nodes, first = std::min(ranks, node * each);
  return {first, std::min(each, ranks - first)};
}
/// Whether every node gets a rank.
inline bool can_deal(int ranks, int nodes) { return nodes >= 1 && nodes <= ranks && deal(ranks, nodes, nodes - 1).count > 0; }

}  // namespace pm::launch
