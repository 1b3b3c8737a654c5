// SPDX-License-Identifier: Apache-2.0
#include "worker/models/heads/images/boxes.h"

#include <ATen/ATen.h>

namespace pm::models {

BoxesHead::BoxesHead(const policy::Model& model, const policy::Head& head, const policy::BoxesSpec& boxes,
                     layers::Loader& loader)
    : ScoringHead(model, head, loader, /*one_column=*/false) {
  for (const policy::Linear& layer : boxes.layers) layers_.emplace_back(layer, loader);
}

at::Tensor BoxesHead::score(const at::Tensor& states, comm::Communicator&) const {
  at::Tensor x = states;
  for (size_t i = 0; i < layers_.size(); ++i) {
    x = layers_[i](x);
    if (i + 1 < layers_.size()) x = at::relu(x);
  }
  return at::sigmoid(x);
}

}  // namespace pm::models
