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
  at::Tensor y = x.to(at::kFloat);
  if (weight_.defined()) y = y * weight_;
  return bias_.defined() ? y + bias_ : y;
}

at::Tensor Norm::operator()(const at::Tensor& x, at::ScalarType result) const {
  if (kind_ == policy::NormKind::Affine) return affine(x).to(result);
  if (policy::is_layer_norm(kind_)) return ops::layer_norm(x, weight_, bias_, eps_, result);
  return ops::rms_norm(x, weight_, eps_, kind_ == policy::NormKind::GemmaRms ? 1 : 0, result);
}

at::Tensor Norm::of_sum(at::Tensor& x, const at::Tensor& residual, at::ScalarType result) const {
  if (kind_ == policy::NormKind::Affine) {
    x = x.add_(residual).to(residual.scalar_type());
    return affine(x).to(result);
  }
  if (policy::is_layer_norm(kind_)) return ops::fused_add_layer_norm(x, residual, weight_, bias_, eps_, result);
  return ops::fused_add_rms_norm(x, residual, weight_, eps_, kind_ == policy::NormKind::GemmaRms ? 1 : 0, result);
}

ops::HeadNorm Norm::of_heads() const {
  return {.is_rms = !policy::is_layer_norm(kind_),
          .weight = weight_,
          .bias = bias_,
          .eps = eps_,
          .weight_offset = kind_ == policy::NormKind::GemmaRms ? 1. : 0.};
}

const at::Tensor& Residual::sum() {
  if (!added_.defined()) return state_;
  at::Tensor added = std::exchange(added_, {});
  if (added.scalar_type() == state_.scalar_type()) return state_ = added.add_(state_);
  at::Tensor sum = at::empty_like(state_);
  return state_ = at::add_out(sum, added, state_);
}

at::Tensor Residual::normed(const std::optional<Norm>& norm, at::ScalarType result) {
  if (!norm) return sum().to(result);
  if (!added_.defined()) return (*norm)(state_, result);
  at::Tensor normed = norm->of_sum(added_, state_, result);
  state_ = std::exchange(added_, {});
  return normed;
}

void Residual::add(at::Tensor x) {
  sum();
  added_ = std::move(x);
}

}  // namespace pm::layers
