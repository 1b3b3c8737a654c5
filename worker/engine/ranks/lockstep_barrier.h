// SPDX-License-Identifier: Apache-2.0
// Data-parallel ranks in lockstep: each rank has its own batch, but all ranks all-gather parameters together (FSDP /
// ZeRO-3), so they must run their steps together.
#pragma once
#include <memory>
#include <vector>

#include "worker/engine/ranks/dp_rank.h"

namespace pm::engine {

/// Returns one data-parallel rank for rank 0 and one for each follower, in the order of ranks; `followers` and
/// `results` are their channels. A step begins when every data-parallel rank has sent its message or is idle; idle ones
/// take part with an empty message. At most two threads use a data-parallel rank at once: the one that calls send() and
/// take(), and the barrier's. If one rank fails, all fail.
std::vector<std::unique_ptr<DpRank>> lockstep_dp_ranks(Rank& rank0, Channels followers, Channels results,
                                                       std::chrono::milliseconds deadline);

}  // namespace pm::engine
