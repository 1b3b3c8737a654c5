// SPDX-License-Identifier: Apache-2.0
// Declares the placement of the ranks of one replica on pods and the resource requests of each pod.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "controller/operator/api/spec.h"
#include "planner/plan.h"

namespace pm::op {

struct PodLayout {
  std::vector<int> ranks;  ///< per pod of the replica; the last may hold fewer
  int64_t shm = 0;         ///< bytes of /dev/shm in each pod
  int64_t memory = 0;      ///< request and limit of each pod in bytes, shared memory included
  int64_t cpu_request_milli = 0;
  std::optional<int64_t> cpu_limit_milli;
  int nodes() const { return static_cast<int>(ranks.size()); }
  /// Returns the index of the pod that holds a rank.
  int node_of(int rank) const;
};

/// Assigns ranks in order to the fewest pods that hold at most devices.perNode ranks each. Ranks are partitioned
/// evenly; the last pod may hold fewer. The planner and the worker partition them in the same way. Sizes that the spec
/// leaves out follow from the plan:
/// - shm: that of the plan, rounded up to MiB. A replica of several ranks on GPUs gets 128 MiB more per rank, for the
///   buffers of NCCL where GPUs have no peer access (a bound from 4 MiB per channel, not measured).
/// - memory on CPU: the predicted bytes of the ranks of the fullest pod, with those of adapters and of a draft model,
///   + 128 MiB per rank (staging of loads and slack) + 256 MiB (launcher and page tables).
/// - memory on GPU: 4 GiB per rank (host side of CUDA, pinned staging) + the weights that a rank pins (offload to
///   HostMemory) + 2 GiB. Shared memory is added in both cases.
/// - cpu: a request of half a core per rank, and no limit.
PodLayout make_pod_layout(const Spec&, const Plan&);

/// Returns the number of ranks of one replica.
int ranks_of(const Plan&);

}  // namespace pm::op
