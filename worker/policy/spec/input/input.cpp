// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/spec/input/input.h"

namespace pm::policy {

void Input::collect(ParamCollector& all) const {
  all.add(token);
  for (const TokenCluster& cluster : clusters) {
    all.add(cluster.table);
    all.add(cluster.projection);
  }
  all.add(positions);
  if (patch_grid) patch_grid->collect(all);
  if (axial) {
    all.add(axial->rows);
    all.add(axial->columns);
  }
  for (const IndexTable& table : tables) all.add(table.table);
  if (features) {
    all.add(features->projection);
    all.add(features->positions);
    for (const IndexTable& table : features->tables) all.add(table.table);
  }
  if (entities) entities->collect(all);
  all.add(streams);
  if (targets) all.add(targets->state);
  all.add(projection);
  all.add(class_token);
  all.add(distillation_token);
  all.add(mask_token);
  all.add(norm);
  if (vectors) vectors->collect(all);
  if (convolutions) convolutions->collect(all);
  if (positional_convolution) positional_convolution->collect(all);
  if (backbone) backbone->collect(all);
  if (grid) grid->collect(all);
  all.add(queries);
  if (pixels) pixels->collect(all);
  if (latents) latents->collect(all);
  if (layer_inputs) layer_inputs->collect(all);
  if (joined_states) joined_states->collect(all);
  if (quantized) quantized->collect(all);
}

}  // namespace pm::policy
