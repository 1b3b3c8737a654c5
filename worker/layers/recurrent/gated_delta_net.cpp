// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/recurrent/gated_delta_net.h"

#include <ATen/ATen.h>

#include <cmath>

#include "worker/ops/recurrent/delta_rule.h"

namespace pm::layers {

namespace {

constexpr double least_square = 1e-6;  // added to the squared length of queries and keys, as transformers does

at::Tensor of_length_one(const at::Tensor& x) {
  return x * at::rsqrt(x.square().sum(-1, /*keepdim=*/true) + least_square);
}

}  // namespace

DeltaNet::DeltaNet(const policy::DeltaNet& net, Loader& loader)
    : key_heads_(loader.range(net.sharded()).size()),
      values_per_key_(net.values_per_key()),
      key_dim_(net.key_dim),
      value_dim_(net.value_dim),
      in_({&net.query, &net.key, &net.value, &net.output_gate}, loader),
      gates_({&net.beta, &net.step}, loader),
      taps_{loader.weight(net.query_taps), loader.weight(net.key_taps), loader.weight(net.value_taps)},
      decay_(loader.weight(net.decay)),
      step_bias_(loader.weight(net.step_bias)),
      norm_(net.norm, loader),
      out_(net.out, loader) {}

/// Runs the delta rule on queries, keys and values; `factors` are decays and rates.
at::Tensor DeltaNet::read(Rows r) const {
  const int64_t rows = r.convolved.size(0), keys = key_heads_ * key_dim_, heads = key_heads_ * values_per_key_;
  const auto repeated = [&](int64_t column, double divisor) {
    const at::Tensor own = r.convolved.narrow(1, column, keys).reshape({rows, key_heads_, 1, key_dim_});
    return of_length_one(own)
        .div_(divisor)
        .expand({rows, key_heads_, values_per_key_, key_dim_})
        .reshape({rows, heads, key_dim_});
  };
  const ops::DeltaRule rule{
      .queries = repeated(0, std::sqrt(static_cast<double>(key_dim_))),
      .keys = repeated(keys, 1),
      .values = r.convolved.narrow(1, 2 * keys, heads * value_dim_).reshape({rows, heads, value_dim_}),
      .decays = r.factors[0],
      .rates = r.factors[1]};
  const at::Tensor result = r.single ? ops::delta_rule_step(rule, r.matrices) : ops::delta_rule(rule, r.matrices);
  return result.reshape({rows, heads * value_dim_});
}

at::Tensor DeltaNet::operator()(const at::Tensor& x, const Batch& batch, LayerState* state, comm::Communicator&) const {
  const int64_t tokens = x.size(0), heads = key_heads_ * values_per_key_, values = heads * value_dim_,
                channels = 2 * key_heads_ * key_dim_ + values;
  const at::Tensor projected = in_(x), gates = gates_(x).to(at::kFloat);
  const Convolution taps = convolution(taps_, {}, /*activated=*/true);
  const at::Tensor decay = decay_.value().to(at::kFloat), step_bias = step_bias_.value().to(at::kFloat),
                   decays = at::softplus(gates.narrow(1, heads, heads) + step_bias).mul_(decay.exp()).neg_(),
                   rates = at::sigmoid(gates.narrow(1, 0, heads));
  const at::Tensor result = run(projected.narrow(1, 0, channels).to(at::kFloat), {decays, rates}, taps,
                                {heads, key_dim_, value_dim_}, batch, state),
                   gate = projected.narrow(1, channels, values).to(at::kFloat);
  return norm_(result.reshape({tokens * heads, value_dim_}))
      .reshape({tokens, values})
      .mul_(at::silu(gate))
      .to(x.scalar_type());
}

}  // namespace pm::layers
