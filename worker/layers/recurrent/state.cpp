// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/recurrent/state.h"

#include <ATen/ATen.h>

#include "worker/policy/tensor_slices.h"

namespace pm::layers {

namespace {

template <typename Use>
void for_tensors(std::vector<LayerState>& layers, const Use& use) {
  for (LayerState& layer : layers)
    for (at::Tensor* tensor : {&layer.inputs, &layer.matrices})
      if (tensor->defined()) use(*tensor);
}

}  // namespace

RecurrentStates::RecurrentStates(const policy::Stack& stack, Range layers, const Loader& loader, int64_t slots) {
  const auto options = at::TensorOptions(at::kFloat).device(loader.device());
  for (int64_t number = layers.begin; number < layers.end; ++number) {
    LayerState& made = layers_.emplace_back();
    const auto& block = stack.layers[static_cast<size_t>(number)].recurrent;
    if (!block) continue;
    const policy::StateShape shape = block->state();
    const int64_t units = loader.range(block->sharded()).size();
    made.inputs = at::zeros({0, shape.inputs, units * shape.channels + shape.shared_channels}, options);
    if (shape.matrices > 0) made.matrices = at::zeros({0, units * shape.matrices, shape.rows, shape.columns}, options);
  }
  reserve(slots);
}

void RecurrentStates::reserve(int64_t slots) {
  if (slots <= slots_) return;
  for_tensors(layers_, [&](at::Tensor& tensor) {
    std::vector<int64_t> shape = tensor.sizes().vec();
    shape[0] = slots - slots_;
    tensor = at::cat({tensor, at::zeros(shape, tensor.options())});
  });
  slots_ = slots;
}

void RecurrentStates::copy(std::span<const int32_t> pairs) {
  for (size_t i = 1; i < pairs.size(); i += 2) reserve(pairs[i] + 1);
  for_tensors(layers_, [&](at::Tensor& tensor) {
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) tensor[pairs[i + 1]].copy_(tensor[pairs[i]]);
  });
}

int64_t RecurrentStates::bytes() const {
  int64_t bytes = 0;
  for (const LayerState& layer : layers_)
    for (const at::Tensor& tensor : {layer.inputs, layer.matrices})
      if (tensor.defined()) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

}  // namespace pm::layers
