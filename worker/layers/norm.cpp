// See layers.h: norms.
#include <ATen/ATen.h>

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

}  // namespace pm::layers
