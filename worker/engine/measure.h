// What a rank holds, on its block of the status board.
#pragma once
#include "worker/comm/status.h"
#include "worker/parallel/executor.h"

namespace pm::engine {

/// Once it has loaded: weights, KV blocks, runtime. Peaks count from here. On a device runtime is what the device holds beside this rank's tensors, its KV blocks, what its communicators took and the peak of
/// its activations as far as the allocator has that: its context and libraries, spare memory of the allocator, and whatever other programs have there. What the board says of activations already stays if it is more.
void show_loaded(parallel::Executor&, comm::RankStatus&);
/// After a step: the peak of what is neither weights nor KV blocks; on a device now and then its other figures too.
void show_step(parallel::Executor&, comm::RankStatus&);

}  // namespace pm::engine
