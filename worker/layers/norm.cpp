// SPDX-License-Identifier: Apache-2.0
// The norms, and the residual stream that feeds them.
#include <ATen/ATen.h>

#include <utility>

#include "worker/layers/layers.h"

namespace pm::layers {

Norm::Norm(const policy::Norm& norm, Loader& loader) : kind_(norm.kind), eps_(norm.eps) {
  if (norm.weight) weight_ = loader.load(*norm.weight);
  if (norm.bias) bias_ = loader.load(*norm.bias);
  // as transformers does: the sum is rounded to the type of the weight
  if (kind_ == policy::NormKind::Layer1p && weight_.defined()) weight_ = weight_ + 1;
}

/// Multiplies by the weight and adds the bias, in F32.
at::Tensor Norm::affine(const at::Tensor& x) const {
  const at::Tensor y = weight_.defined() ? x * weight_ : x;
  return bias_.defined() ? y + bias_ : y;
}

at::Tensor Norm::operator()(const at::Tensor& x) const {
  if (kind_ == policy::NormKind::Affine) return affine(x);
  if (policy::is_layer_norm(kind_)) return ops::layer_norm(x, weight_, bias_, eps_);
  return ops::rms_norm(x, weight_, eps_, kind_ == policy::NormKind::GemmaRms ? 1 : 0);
}

at::Tensor Norm::of_sum(at::Tensor& x, const at::Tensor& residual) const {
  if (kind_ == policy::NormKind::Affine) return affine(x.add_(residual));
  if (policy::is_layer_norm(kind_)) return ops::fused_add_layer_norm(x, residual, weight_, bias_, eps_);
  return ops::fused_add_rms_norm(x, residual, weight_, eps_, kind_ == policy::NormKind::GemmaRms ? 1 : 0);
}

ops::HeadNorm Norm::of_heads() const {
  return {.is_rms = !policy::is_layer_norm(kind_),
          .weight = weight_,
          .bias = bias_,
          .eps = eps_,
          .weight_offset = kind_ == policy::NormKind::GemmaRms ? 1. : 0.};
}

const at::Tensor& Residual::sum() {
  if (added_.defined()) state_ = std::exchange(added_, {}).add_(state_);
  return state_;
}

at::Tensor Residual::normed(const std::optional<Norm>& norm) {
  if (!norm) return sum();
  if (!added_.defined()) return (*norm)(state_);
  at::Tensor result = norm->of_sum(added_, state_);
  state_ = std::exchange(added_, {});
  return result;
}

void Residual::add(at::Tensor x) {
  sum();
  added_ = std::move(x);
}

}  // namespace pm::layers
