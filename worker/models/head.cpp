// See head.h.
#include "worker/models/head.h"

#include <ATen/ATen.h>

#include <cmath>

namespace pm::models {

Head::Head(const policy::Head& head, layers::Loader& loader) : activation_(head.activation) {
  if (head.dense) dense_.emplace(*head.dense, loader);
  if (head.norm) norm_.emplace(*head.norm, loader);
  if (head.logits) logits_.emplace(head, loader);
  if (head.classes) classes_.emplace(*head.classes, loader);
  if (head.scalar) temperature_ = std::exp(loader.load(*head.scalar).to(at::kDouble).item<double>());
}

at::Tensor Head::features(const at::Tensor& states) const {
  at::Tensor x = layers::activate(activation_, dense_ ? (*dense_)(states) : states);
  return norm_ ? (*norm_)(x) : x;
}

at::Tensor Head::scores(const at::Tensor& states, comm::Communicator& comm) const {
  const at::Tensor x = features(states);
  if (logits_) return logits_->gathered(x, comm);
  return classes_ ? (*classes_)(x) : x;
}

}  // namespace pm::models
