// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/recurrent/gated_delta_net.h"

#include <ATen/ATen.h>

#include <cmath>

#include "worker/ops/staging.h"

namespace pm::layers {

namespace {

constexpr double least_square = 1e-6;  // added to the squared length of queries and keys, as transformers does

at::Tensor of_length_one(const at::Tensor& x) {
  return x * at::rsqrt(x.square().sum(-1, /*keepdim=*/true) + least_square);
}

}  // namespace

DeltaNet::DeltaNet(const policy::DeltaNet& net, Loader& loader)
    : key_heads_(loader.range(net.key.weight).size()),
      values_per_key_(net.values_per_key()),
      key_dim_(net.key_dim),
      value_dim_(net.value_dim),
      taps_(net.taps),
      in_({&net.query, &net.key, &net.value, &net.output_gate}, loader),
      gates_({&net.beta, &net.step}, loader),
      query_taps_(loader.weight(net.query_taps)),
      key_taps_(loader.weight(net.key_taps)),
      value_taps_(loader.weight(net.value_taps)),
      decay_(loader.weight(net.decay)),
      step_bias_(loader.weight(net.step_bias)),
      norm_(net.norm, loader),
      out_(net.out, loader) {}

/// Convolves `inputs` [sequences, taps - 1 + tokens, channels] along the tokens with taps [channels, taps], and applies
/// SiLU: [sequences, tokens, channels].
at::Tensor DeltaNet::convolved(const at::Tensor& inputs, const at::Tensor& taps) const {
  const int64_t tokens = inputs.size(1) - (taps_ - 1);
  at::Tensor sum = inputs.narrow(1, 0, tokens) * taps.select(1, 0);
  for (int64_t tap = 1; tap < taps_; ++tap) sum.addcmul_(inputs.narrow(1, tap, tokens), taps.select(1, tap));
  return at::silu_(sum);
}

/// What a step's tokens are made of before they read and write states.
struct DeltaNet::Step {
  at::Tensor mixed;          ///< [tokens, channels]: queries, keys and values before the convolution
  at::Tensor taps;           ///< [channels, taps]
  at::Tensor decays, rates;  ///< [tokens, value heads]
};

/// Returns what these rows of the step read and write, of `convolved` [rows, channels].
ops::DeltaRule DeltaNet::rule(const at::Tensor& convolved, const at::Tensor& decays, const at::Tensor& rates) const {
  const int64_t rows = convolved.size(0), keys = key_heads_ * key_dim_, heads = key_heads_ * values_per_key_;
  const auto repeated = [&](int64_t column, double divisor) {
    const at::Tensor own = convolved.narrow(1, column, keys).reshape({rows, key_heads_, 1, key_dim_});
    return of_length_one(own)
        .div_(divisor)
        .expand({rows, key_heads_, values_per_key_, key_dim_})
        .reshape({rows, heads, key_dim_});
  };
  return {.queries = repeated(0, std::sqrt(static_cast<double>(key_dim_))),
          .keys = repeated(keys, 1),
          .values = convolved.narrow(1, 2 * keys, heads * value_dim_).reshape({rows, heads, value_dim_}),
          .decays = decays,
          .rates = rates};
}

/// Runs the rows of one sequence, from the state of its slot where it goes on.
at::Tensor DeltaNet::run_sequence(const Step& step, const ops::SequenceSpan& span, LayerState* state,
                                  int64_t slot) const {
  const auto own = [&](const at::Tensor& x) { return x.narrow(0, span.first, span.tokens); };
  const bool goes_on = state && span.context > 0;
  const at::Tensor before =
      goes_on ? state->inputs[slot] : at::zeros({taps_ - 1, step.mixed.size(1)}, step.mixed.options());
  const at::Tensor inputs = at::cat({before, own(step.mixed)});
  at::Tensor heads = goes_on ? state->heads[slot]
                             : at::zeros({key_heads_ * values_per_key_, key_dim_, value_dim_}, step.mixed.options());
  const at::Tensor rows = convolved(inputs.unsqueeze(0), step.taps).squeeze(0);
  at::Tensor result = ops::delta_rule(rule(rows, own(step.decays), own(step.rates)), heads);
  if (state) {
    state->inputs[slot].copy_(inputs.narrow(0, span.tokens, taps_ - 1));
    state->heads[slot].copy_(heads);
  }
  return result;
}

/// Runs one row of each of several sequences that go on.
at::Tensor DeltaNet::run_tokens(const Step& step, const at::Tensor& rows, const at::Tensor& slots,
                                LayerState& state) const {
  const auto own = [&](const at::Tensor& x) { return x.index_select(0, rows); };
  const at::Tensor inputs = at::cat({state.inputs.index_select(0, slots), own(step.mixed).unsqueeze(1)}, 1);
  state.inputs.index_copy_(0, slots, inputs.narrow(1, 1, taps_ - 1));
  at::Tensor heads = state.heads.index_select(0, slots);
  at::Tensor result =
      ops::delta_rule_step(rule(convolved(inputs, step.taps).squeeze(1), own(step.decays), own(step.rates)), heads);
  state.heads.index_copy_(0, slots, heads);
  return result;
}

at::Tensor DeltaNet::operator()(const at::Tensor& x, const Batch& batch, LayerState* state) const {
  const int64_t tokens = x.size(0), heads = key_heads_ * values_per_key_, values = heads * value_dim_,
                channels = 2 * key_heads_ * key_dim_ + values;
  const at::Tensor projected = in_(x), gates = gates_(x).to(at::kFloat);
  std::vector<at::Tensor> taps;
  for (const Weight* part : {&query_taps_, &key_taps_, &value_taps_})
    taps.push_back(part->value().reshape({-1, taps_}).to(at::kFloat));
  const at::Tensor decay = decay_.value().to(at::kFloat), step_bias = step_bias_.value().to(at::kFloat);
  const Step step{.mixed = projected.narrow(1, 0, channels).to(at::kFloat),
                  .taps = at::cat(taps),
                  .decays = at::softplus(gates.narrow(1, heads, heads) + step_bias).mul_(decay.exp()).neg_(),
                  .rates = at::sigmoid(gates.narrow(1, 0, heads))};
  at::Tensor result = at::empty({tokens, heads, value_dim_}, step.mixed.options());
  std::vector<int64_t> rows, slots;  // of sequences that go on with one token
  const std::vector<ops::SequenceSpan>& spans = batch.sequences.spans;
  for (size_t i = 0; i < spans.size(); ++i) {
    const int64_t slot = state ? batch.state_slots.at(i) : 0;
    if (state && spans[i].tokens == 1 && spans[i].context > 0) {
      rows.push_back(spans[i].first);
      slots.push_back(slot);
    } else {
      result.narrow(0, spans[i].first, spans[i].tokens).copy_(run_sequence(step, spans[i], state, slot));
    }
  }
  if (!rows.empty()) {
    const auto on_device = [&](const std::vector<int64_t>& numbers) {
      return ops::to_device(at::tensor(numbers, at::kLong), x.device());
    };
    const at::Tensor of_rows = on_device(rows);
    result.index_copy_(0, of_rows, run_tokens(step, of_rows, on_device(slots), *state));
  }
  const at::Tensor gate = projected.narrow(1, channels, values).to(at::kFloat);
  return norm_(result.reshape({tokens * heads, value_dim_}))
      .reshape({tokens, values})
      .mul_(at::silu(gate))
      .to(x.scalar_type());
}

}  // namespace pm::layers
