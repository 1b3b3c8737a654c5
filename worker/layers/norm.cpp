// See layers.h: norms.
#include <ATen/ATen.h>

#include <utility>

#include "worker/layers/layers.h"
#include "worker/ops/fused.h"

namespace pm::layers {

Norm::Norm(const policy::Norm& norm, Loader& loader) : kind_(norm.kind), eps_(norm.eps) {
  if (norm.gain) gain_ = loader.load(*norm.gain);
  if (norm.bias) bias_ = loader.load(*norm.bias);
}

at::Tensor Norm::operator()(const at::Tensor& x) const {
  if (kind_ == policy::NormKind::Layer) return ops::layer_norm(x, gain_, bias_, eps_);
  return ops::rms_norm(x, gain_, eps_, kind_ == policy::NormKind::RmsZeroCentred ? 1 : 0);
}

at::Tensor Norm::of_sum(at::Tensor& x, const at::Tensor& residual) const {
  if (kind_ == policy::NormKind::Layer) return ops::sum_layer_norm(x, residual, gain_, bias_, eps_);
  return ops::sum_rms_norm(x, residual, gain_, eps_, kind_ == policy::NormKind::RmsZeroCentred ? 1 : 0);
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
