// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/per_layer_inputs.h"

#include <ATen/ATen.h>

#include "worker/layers/feed_forward/mlp.h"

namespace pm::layers {

LayerInputs::LayerInputs(const policy::LayerInputs& inputs, Loader& loader)
    : policy_(inputs), table_(inputs.table, loader), projection_(inputs.projection, loader) {
  if (inputs.norm) norm_.emplace(*inputs.norm, loader);
}

at::Tensor LayerInputs::operator()(const at::Tensor& ids, const at::Tensor& x, comm::Communicator& comm) const {
  at::Tensor rows = table_.partial(ids).contiguous();
  if (comm.size() > 1) comm.all_reduce(rows);
  at::Tensor projected = projection_(x.to(at::kFloat)) * policy_.projection_scale;
  projected = projected.reshape({x.size(0), -1, policy_.width});
  if (norm_) projected = (*norm_)(projected);
  return (rows.view_as(projected) * policy_.scale + projected) * policy_.factor;
}

LayerInput::LayerInput(const policy::LayerInput& input, Loader& loader)
    : activation_(input.activation), gate_(input.gate, loader), projection_(input.projection, loader) {
  if (input.norm) norm_.emplace(*input.norm, loader);
}

at::Tensor LayerInput::operator()(const at::Tensor& x, const at::Tensor& input, at::ScalarType result) const {
  const at::Tensor gated = activate(activation_, gate_(x.to(at::kFloat))) * input;
  const at::Tensor made = projection_(gated);
  return norm_ ? (*norm_)(made, result) : made.to(result);
}

}  // namespace pm::layers
