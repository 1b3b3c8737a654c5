// How many KV blocks a device has room for, by what its largest step takes.
#pragma once
#include "worker/engine/group.h"

namespace pm::engine {

/// The largest step that the plan foresees: a chunk of a prompt at the end of the longest sequence, with the prompt of an encoder before it, beside single tokens of others, all of
/// which want scores; after them a pass over one such sequence, as far as its scores may be asked for. `blocks`: the KV blocks that there are for it; fewer than one sequence takes is std::invalid_argument. `needed` becomes how many it uses.
StepMessage largest_step(const policy::Model&, const Plan&, int64_t blocks, int64_t& needed);

struct Warmed {
  int64_t blocks = 0;        ///< the rank has now
  int64_t activations = 0;   ///< bytes that the largest step took beside weights and KV blocks
  int64_t graphs = 0;        ///< bytes that recorded steps hold
};

/// Runs the largest step, records a step for each size of batch where launches can be recorded, and makes the rank's KV blocks of what is left then of its device, or of what the plan lets it have of it: the peak of that step stays free, as do what the allocator
/// lost between blocks of memory and what recorded steps held; these are then recorded anew over the blocks, in the same order. All ranks of `world` call it at once and end with the same number, at most group.most_blocks. `ranks_of_device`: processes
/// that share the device. Throws Error{DoesNotFit, "OOMKilled"} with the numbers when not even one sequence has room.
Warmed warm_up(Rank&, const GroupModel& group, comm::Communicator& world, int ranks_of_device);

}  // namespace pm::engine
