// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/feed_forward/mlp.h"

#include <ATen/ATen.h>

#include <stdexcept>
#include <type_traits>

#include "worker/ops/fused.h"

namespace pm::layers {

at::Tensor activate(policy::Activation activation, const at::Tensor& x) {
  using policy::Activation;
  switch (activation) {
    case Activation::Gelu:
      return at::gelu(x);
    case Activation::GeluNew:
      return at::gelu(x, "tanh");
    case Activation::Relu:
      return at::relu(x);
    case Activation::Silu:
      return at::silu(x);
    case Activation::QuickGelu:
      return x * at::sigmoid(1.702 * x);
    case Activation::Tanh:
      return at::tanh(x);
    case Activation::Relu2:
      return at::relu(x).square_();
  }
  throw std::logic_error("an activation without a function");
}

at::Tensor activate(const std::optional<policy::Activation>& activation, const at::Tensor& x) {
  return activation ? activate(*activation, x) : x;
}

Xielu::Xielu(const policy::Xielu& xielu, Loader& loader)
    : positive_(loader.weight(xielu.positive)),
      negative_(loader.weight(xielu.negative)),
      beta_(loader.weight(xielu.beta)),
      eps_(loader.weight(xielu.eps)) {}

at::Tensor Xielu::operator()(const at::Tensor& x) const {
  const auto number = [](const Weight& weight) { return weight.value().to(at::kFloat); };
  const at::Tensor beta = number(beta_), all = x.to(at::kFloat), above = at::softplus(number(positive_)) * all * all,
                   below = (beta + at::softplus(number(negative_))) * (at::expm1(at::minimum(all, number(eps_))) - all);
  return (at::where(all.gt(0), above, below) + beta * all).to(x.scalar_type());
}

DenseMlp::DenseMlp(const policy::DenseMlp& mlp, Loader& loader)
    : activation_(mlp.activation),
      up_({&mlp.up}, loader),
      xielu_(mlp.xielu ? std::optional<Xielu>(std::in_place, *mlp.xielu, loader) : std::nullopt),
      down_(mlp.down, loader) {}

at::Tensor DenseMlp::inner(const at::Tensor& x) const {
  const at::Tensor y = up_(x);
  return xielu_ ? (*xielu_)(y) : activate(activation_, y);
}

namespace {

std::vector<const policy::Linear*> gate_and_up(const policy::GatedMlp& mlp) {
  if (!mlp.has_gate) return {&mlp.up};
  return {&mlp.gate, &mlp.up};
}

}  // namespace

GatedMlp::GatedMlp(const policy::GatedMlp& mlp, Loader& loader)
    : activation_(mlp.activation),
      has_gate_(mlp.has_gate),
      limit_(mlp.limit),
      up_offset_(mlp.up_offset),
      gate_and_up_(gate_and_up(mlp), loader),
      down_(mlp.down, loader) {}

at::Tensor GatedMlp::inner(const at::Tensor& x) const {
  const at::Tensor in = gate_and_up_(x);
  if (!has_gate_) return activate(activation_, in);
  if (activation_ == policy::Activation::Silu && limit_ == 0 && up_offset_ == 0) return ops::silu_and_mul(in);
  const int64_t width = in.size(1) / 2;
  at::Tensor gate = in.narrow(1, 0, width), up = in.narrow(1, width, width);
  if (limit_ > 0) gate = gate.clamp_max(limit_), up = up.clamp(-limit_, limit_);
  if (up_offset_ != 0) up = up + up_offset_;
  return activate(activation_, gate) * up;
}

namespace {

using Kind = std::variant<DenseMlp, GatedMlp, Experts>;

Kind make_kind(const policy::Mlp& mlp, Loader& loader) {
  return std::visit(
      [&]<typename Spec>(const Spec& spec) -> Kind {
        if constexpr (std::is_same_v<Spec, policy::GatedMlp>)
          return GatedMlp(spec, loader);
        else if constexpr (std::is_same_v<Spec, policy::Experts>)
          return Experts(spec, loader);
        else
          return DenseMlp(spec, loader);
      },
      mlp.kind);
}

}  // namespace

Mlp::Mlp(const policy::Mlp& mlp, Loader& loader) : kind_(make_kind(mlp, loader)) {}

at::Tensor Mlp::operator()(const at::Tensor& x, comm::Communicator& comm, at::ScalarType result,
                           const at::Tensor& residual) const {
  return std::visit(
      [&]<typename Block>(const Block& mlp) {
        if constexpr (std::is_same_v<Block, Experts>)
          return mlp(x, residual, comm, result);
        else
          return mlp.down()(mlp.inner(x), comm, result);
      },
      kind_);
}

at::Tensor Mlp::partial(const at::Tensor& x) const {
  return std::visit(
      [&]<typename Block>(const Block& mlp) {
        if constexpr (std::is_same_v<Block, Experts>)
          return mlp.partial(x, {});
        else
          return mlp.down().partial(mlp.inner(x));
      },
      kind_);
}

const at::Tensor& Mlp::bias() const {
  static const at::Tensor none;
  return std::visit(
      []<typename Block>(const Block& mlp) -> const at::Tensor& {
        if constexpr (std::is_same_v<Block, Experts>)
          return none;
        else
          return mlp.down().bias();
      },
      kind_);
}

}  // namespace pm::layers
