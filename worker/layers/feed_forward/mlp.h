// SPDX-License-Identifier: Apache-2.0
// The feed-forward block: dense or gated, column-parallel in and row-parallel out.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <variant>

#include "worker/layers/layers.h"
#include "worker/policy/spec/mlp.h"

namespace pm::layers {

at::Tensor activate(policy::Activation, const at::Tensor& x);
/// Returns x where there is no activation.
at::Tensor activate(const std::optional<policy::Activation>&, const at::Tensor& x);

/// down(act(up(x))).
class DenseMlp {
 public:
  DenseMlp(const policy::DenseMlp&, Loader&);
  /// Returns act(up(x)) [tokens, local columns].
  at::Tensor inner(const at::Tensor& x) const;
  const RowLinear& down() const { return down_; }

 private:
  policy::Activation activation_;
  ColumnLinear up_;
  RowLinear down_;
};

/// down(act(gate(x)) * up(x)); gate and up are one product.
class GatedMlp {
 public:
  GatedMlp(const policy::GatedMlp&, Loader&);
  /// Returns act(gate(x)) * up(x) [tokens, local columns].
  at::Tensor inner(const at::Tensor& x) const;
  const RowLinear& down() const { return down_; }

 private:
  policy::Activation activation_;
  ColumnLinear gate_and_up_;
  RowLinear down_;
};

class Mlp {
 public:
  Mlp(const policy::Mlp&, Loader&);
  /// [tokens, hidden] -> same, in the type of RowLinear's result.
  at::Tensor operator()(const at::Tensor& x, comm::Communicator&, at::ScalarType result = at::kFloat) const;
  /// Returns this rank's partial sum in F32 without the bias, for blocks that share one all-reduce.
  at::Tensor partial(const at::Tensor& x) const;
  const at::Tensor& bias() const;  ///< undefined: none

 private:
  std::variant<DenseMlp, GatedMlp> kind_;
};

}  // namespace pm::layers
