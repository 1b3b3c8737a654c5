// Pipeline stages: all layers, in the order in which the stacks run, in contiguous runs of nearly equal bytes, and the facts of one run.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "planner/cuts.h"
#include "planner/facts.h"

namespace pm {

/// The layers [begin, end) of each stack that a stage holds: every stack of the facts, in their order, also those of which it holds none.
using Layers = std::vector<std::pair<std::string, Range>>;

/// All layers of all stacks.
Layers all_layers(const Facts&);

/// Cuts the layers into p contiguous runs of at least one layer, so that the largest run has the fewest bytes, and the others are near the mean.
/// What lies before a stack's first layer goes with that layer, what lies after its last one with the last, heads of the model with the last
/// layer of all; storage that several places read is held, and counted once, by each stage that has one of them. Bytes are those of one of
/// `tensor` ranks in `dtype`. Integer arithmetic only: planner, loader and tests agree on every machine.
/// Throws std::invalid_argument when p is below 1 or exceeds the layers, or a stack has none.
std::vector<Layers> stages(const Facts&, int p, int tensor, DType dtype);

/// The facts of a stage that holds `layers`: deal(), weight_bytes(), kv_bytes_per_token() and activation_bytes() work on them as on those of a
/// model. Parts are clipped to the stage and keep their layer numbers; storage whose owner is elsewhere is owned by its first use here. A stack
/// has as many layers as are held, and is left out when there are none; its vocabulary is 0 in stages between the first and the last, through
/// which no scores pass. All layers give the facts back unchanged. Throws std::invalid_argument when `layers` are not of these facts.
Facts facts_of_stage(const Facts&, const Layers& layers);

}  // namespace pm
