// SPDX-License-Identifier: Apache-2.0
#include "worker/models/reversible_layer.h"

namespace pm::models {

namespace {

std::optional<layers::Norm> optional_norm(const std::optional<policy::Norm>& norm, layers::Loader& loader) {
  return norm ? std::optional<layers::Norm>(std::in_place, *norm, loader) : std::nullopt;
}

}  // namespace

ReversibleLayer::ReversibleLayer(const policy::Layer& layer, layers::ActivationTypes types, layers::Loader& loader)
    : types_(types),
      attention_norm_(optional_norm(layer.attention.norm, loader)),
      mlp_norm_(optional_norm(layer.mlp.norm, loader)),
      attention_(layer.attention, loader),
      mlp_(layer.mlp, loader) {}

void ReversibleLayer::operator()(layers::Residual& x, layers::Residual& y, const layers::Batch& batch,
                                 layers::LayerCache cache, comm::Communicator& comm) const {
  const at::Tensor read = y.normed(attention_norm_, types_.product);
  x.add(attention_.out()(attention_.self(read, {}, batch, {}, cache, comm), comm, types_.residual));
  y.add(mlp_(x.normed(mlp_norm_, types_.product), comm, types_.residual));
}

}  // namespace pm::models
