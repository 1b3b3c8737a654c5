// See layers.h: the feed-forward block and its activations.
#include <ATen/ATen.h>

#include "worker/base/error.h"
#include "worker/layers/layers.h"
#include "worker/ops/fused.h"

namespace pm::layers {

at::Tensor activate(const std::string& name, const at::Tensor& x) {
  if (name.empty()) return x;
  if (name == "gelu") return at::gelu(x);
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return at::gelu(x, "tanh");
  if (name == "quick_gelu") return x * at::sigmoid(1.702 * x);
  if (name == "relu") return at::relu(x);
  if (name == "silu" || name == "swish") return at::silu(x);
  if (name == "tanh") return at::tanh(x);
  throw Error(ErrorKind::Model, "UnsupportedPolicy",
              "activation \"" + name + "\" is not known; known are gelu, gelu_new, gelu_pytorch_tanh, gelu_fast, quick_gelu, relu, silu, swish, tanh");
}

namespace {

std::vector<const policy::Linear*> stacked(const policy::Mlp& mlp) {
  if (!mlp.gate) return {&mlp.up};
  return {&*mlp.gate, &mlp.up};
}

}  // namespace

Mlp::Mlp(const policy::Mlp& mlp, Loader& loader) : activation_(mlp.activation), gated_(mlp.gate.has_value()), in_(stacked(mlp), loader), down_(mlp.down, loader) {
  activate(activation_, at::zeros({1}));   // a name that is not known is refused before anything runs
}

at::Tensor Mlp::inner(const at::Tensor& x) const {
  const at::Tensor in = in_(x);
  if (!gated_) return activate(activation_, in);
  if (activation_ == "silu" || activation_ == "swish") return ops::gated_silu(in);
  const int64_t width = in.size(1) / 2;
  return activate(activation_, in.narrow(1, 0, width)) * in.narrow(1, width, width);
}

}  // namespace pm::layers
