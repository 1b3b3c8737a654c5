// Lanes whose ranks step together: each rank is a lane with a batch of its own, but weights come together from all of them, so that a step of one is a step of all.
#pragma once
#include <memory>
#include <vector>

#include "worker/engine/lane.h"

namespace pm::engine {

/// One lane for rank 0 and one for each follower, in the order of ranks; `followers` and `results` are theirs. A step begins when every lane has sent its message
/// or rests; those that rest take part with an empty one. Two threads at most use a lane at once: who sends and takes, and the clock. When a rank fails all lanes do.
std::vector<std::unique_ptr<Lane>> lanes_of_one_clock(Rank& rank0, Channels followers, Channels results, std::chrono::milliseconds deadline);

}  // namespace pm::engine
