// SPDX-License-Identifier: Apache-2.0
#include "worker/models/check_recurrent.h"

#include <algorithm>
#include <optional>

#include "worker/models/model.h"

namespace pm::models {

void check_recurrent(const policy::Model& model, const policy::Stack& stack) {
  const bool halved = std::any_of(stack.layers.begin(), stack.layers.end(),
                                  [](const policy::Layer& layer) { return !layer.has_mixer || !layer.has_mlp; });
  if (halved && !policy::is_recurrent(stack))
    policy::refuse_architecture(model, "has layers of one block in a stack without recurrent layers");
  if (!policy::is_recurrent(stack)) return;
  if (!policy::has_rows_of_tokens(stack))
    policy::refuse_architecture(model, "has recurrent layers beside rows that are not those of tokens alone");
  std::optional<policy::StateShape> first;
  bool attends = false;
  for (const policy::Layer& layer : stack.layers) {
    if ((!layer.has_mixer || !layer.has_mlp) &&
        (layer.order != policy::Order::Pre || !layer.stacked.empty() || layer.beside))
      policy::refuse_architecture(model, "has layers of one block that are not plainly pre-norm");
    if (layer.cross || layer.bottleneck || layer.branch || layer.order == policy::Order::Reversible)
      policy::refuse_architecture(model,
                                  "has recurrent layers beside cross-attention, a bottleneck, a convolution "
                                  "branch or two residual streams");
    attends = attends || (layer.has_mixer && !layer.recurrent);
    if (!layer.recurrent) continue;
    if (first && *first != layer.recurrent->state())
      policy::refuse_architecture(model, "has recurrent layers of different sizes in one stack");
    first = layer.recurrent->state();
  }
  if (!attends && Model::generates(model))
    policy::refuse_architecture(model, "generates with recurrent layers alone, without any that attends");
}

}  // namespace pm::models
