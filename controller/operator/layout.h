// How the ranks of one group lie on pods, and what each pod asks for.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "controller/operator/spec.h"
#include "planner/plan.h"

namespace pm::op {

struct Layout {
  std::vector<int> ranks;               ///< per pod of the group; the last may hold fewer
  int64_t shm = 0;                      ///< bytes of /dev/shm in each pod
  int64_t memory = 0;                   ///< request and limit of each pod in bytes, shared memory included
  int64_t cpu_request_milli = 0;
  std::optional<int64_t> cpu_limit_milli;
  int nodes() const { return static_cast<int>(ranks.size()); }
  /// The pod that holds a rank.
  int node_of(int rank) const;
};

/// Ranks are dealt in order to as few pods as hold devices.perNode each, as equally as whole ranks allow; the last may hold fewer. The planner and the worker deal
/// them the same way. Sizes that the spec leaves out follow from the plan:
/// - shm: the plan's, rounded up to MiB; of a group of several ranks on GPUs 128 MiB per rank more, for what NCCL keeps there where GPUs cannot reach each other's memory (a
///   bound by its buffers of 4 MiB per channel, not measured);
/// - memory on CPU: the sum of the predicted bytes of the fullest pod's ranks + 128 MiB per rank (load staging and slack) + 256 MiB (launcher
///   and page tables); on GPU: 4 GiB per rank (CUDA's host side, pinned staging), what a rank pins of the
///   weights (Offload to HostMemory), + 2 GiB. Shared memory is added in every case;
/// - cpu: a request of half a core per rank, no limit.
Layout layout_of(const Spec&, const Plan&);

/// Ranks of one group.
int ranks_of(const Plan&);

}  // namespace pm::op
