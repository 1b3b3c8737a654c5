// SPDX-License-Identifier: Apache-2.0
// The feed-forward block: dense or gated, column-parallel in and row-parallel out.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <variant>
#include <vector>

#include "worker/layers/layers.h"
#include "worker/policy/spec/mlp.h"

namespace pm::layers {

at::Tensor activate(policy::Activation, const at::Tensor& x);
/// Returns x where there is no activation.
at::Tensor activate(const std::optional<policy::Activation>&, const at::Tensor& x);

/// An activation whose four numbers are parameters: policy::Xielu.
class Xielu {
 public:
  Xielu(const policy::Xielu&, Loader&);
  /// Computes in F32; the result has the type of x.
  at::Tensor operator()(const at::Tensor& x) const;

 private:
  Weight positive_, negative_, beta_, eps_;
};

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
  std::optional<Xielu> xielu_;
  RowLinear down_;
};

/// down(act(gate(x)) * (up(x) + up_offset)); gate and up are one product. Without a gate down(act(up(x))).
class GatedMlp {
 public:
  GatedMlp(const policy::GatedMlp&, Loader&);
  /// Returns what `down` reads [tokens, local columns].
  at::Tensor inner(const at::Tensor& x) const;
  const RowLinear& down() const { return down_; }
  bool is_gathered() const { return gate_and_up_.is_gathered(); }

 private:
  policy::Activation activation_;
  bool has_gate_;
  double limit_, up_offset_;
  ColumnLinear gate_and_up_;
  RowLinear down_;
};

/// Chooses experts for tokens. Every rank chooses alike: what it reads is the same on all.
class Router {
 public:
  struct Choice {
    at::Tensor experts;  ///< int64 [tokens, experts of a token]
    at::Tensor weights;  ///< F32, of the same shape
  };
  Router(const policy::Router&, Loader&);
  /// Chooses by what the experts read, or by the residual where the router has a norm of its own.
  Choice operator()(const at::Tensor& x, const at::Tensor& residual) const;

 private:
  /// Returns the scores with those of the groups that a token does not choose among at -infinity.
  at::Tensor of_kept_groups(const at::Tensor& scores) const;
  Choice of_sparse_mixer(const at::Tensor& logits) const;
  const policy::Router& policy_;
  Linear linear_;
  std::optional<Norm> norm_;
  at::Tensor choice_bias_, expert_factors_;
};

/// The sum of what the chosen experts make of a token, and of what a block makes that all tokens go through. A rank has
/// some columns of every expert.
class Experts {
 public:
  Experts(const policy::Experts&, Loader&);
  /// `residual` is what comes to the block before its norm.
  at::Tensor operator()(const at::Tensor& x, const at::Tensor& residual, comm::Communicator&,
                        at::ScalarType result) const;
  /// Returns this rank's partial sum in F32.
  at::Tensor partial(const at::Tensor& x, const at::Tensor& residual) const;

 private:
  /// Returns what an expert makes of rows of x.
  at::Tensor of_expert(const GatedMlp&, const at::Tensor& x) const;
  Router router_;
  std::vector<GatedMlp> experts_;
  bool weigh_input_;
  std::optional<GatedMlp> shared_;
  std::optional<Linear> shared_gate_;
  double shared_factor_;
  bool adds_biases_;  ///< this rank adds the biases that stand after the sum over ranks
};

class Mlp {
 public:
  Mlp(const policy::Mlp&, Loader&);
  /// [tokens, hidden] -> same, in the type of RowLinear's result. `residual` is what comes to the block before its
  /// norm, which a router with a norm of its own reads.
  at::Tensor operator()(const at::Tensor& x, comm::Communicator&, at::ScalarType result = at::kFloat,
                        const at::Tensor& residual = {}) const;
  /// Returns this rank's partial sum in F32 without the bias, for blocks that share one all-reduce.
  at::Tensor partial(const at::Tensor& x) const;
  const at::Tensor& bias() const;  ///< undefined: none, or already part of the partial sums

 private:
  std::variant<DenseMlp, GatedMlp, Experts> kind_;
};

}  // namespace pm::layers
