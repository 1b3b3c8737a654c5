// See layers.h: the feed-forward block and its activations.
#include <ATen/ATen.h>

#include "worker/base/error.h"
#include "worker/layers/layers.h"

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

Mlp::Mlp(const policy::Mlp& mlp, Loader& loader) : activation_(mlp.activation), up_({&mlp.up}, loader), down_(mlp.down, loader) {
  if (mlp.gate) gate_.emplace(std::vector<const policy::Linear*>{&*mlp.gate}, loader);
  activate(activation_, at::zeros({1}));   // a name that is not known is refused before anything runs
}

at::Tensor Mlp::inner(const at::Tensor& x) const {
  const at::Tensor up = up_(x);
  return gate_ ? activate(activation_, (*gate_)(x)).mul_(up) : activate(activation_, up);
}

}  // namespace pm::layers
