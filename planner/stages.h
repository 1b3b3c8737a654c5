// SPDX-License-Identifier: Apache-2.0
// Splits the layers of all stacks, in the order in which the stacks run, into contiguous pipeline stages of nearly
// equal bytes, and computes the metadata of one stage.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "planner/model_metadata.h"
#include "planner/partition.h"

namespace pm {

/// The layers [begin, end) of each stack that a stage holds. Every stack of the metadata is listed in order, also
/// stacks of which the stage holds no layers.
using Layers = std::vector<std::pair<std::string, Range>>;

/// Returns all layers of all stacks.
Layers all_layers(const ModelMetadata&);

/// Splits the layers into p contiguous stages of at least one layer, so that the largest stage has the fewest bytes and
/// the others are near the mean. Parameters before a stack's first layer belong to the stage of that layer, parameters
/// after its last layer to the stage of the last, and heads of the model to the last stage. Shared storage is held, and
/// counted once, by each stage that reads it. Bytes are those of one of `tensor` ranks in `dtype`. Arithmetic is in
/// integers only: planner, loader and tests agree on every machine. Throws std::invalid_argument when p is below 1 or
/// exceeds the number of layers, or a stack has no layers.
std::vector<Layers> stages(const ModelMetadata&, int p, int tensor, DType dtype);

/// Returns the metadata of a stage that holds `layers`: make_partition(), weight_bytes(), kv_bytes_per_token() and
/// activation_bytes() work on it as on that of a model. Parts are clipped to the stage and keep their layer numbers.
/// Storage whose owner is in another stage is owned by its first use in this one. Stacks without layers in the stage
/// are left out. The vocabulary is 0 in stages between the first and the last, which compute no logits. All layers
/// return the metadata unchanged. Throws std::invalid_argument when `layers` do not belong to the metadata.
ModelMetadata stage_metadata(const ModelMetadata&, const Layers& layers);

}  // namespace pm
