// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/recurrent/recurrent_block.h"

#include <ATen/ATen.h>

#include "worker/layers/recurrent/gated_convolution.h"
#include "worker/layers/recurrent/gated_delta_net.h"
#include "worker/layers/recurrent/selective_state_space.h"
#include "worker/ops/staging.h"

namespace pm::layers {

namespace {

/// Convolves `inputs` [sequences, taps - 1 + tokens, channels] along the tokens: [sequences, tokens, channels].
at::Tensor convolved(const at::Tensor& inputs, const at::Tensor& taps, const at::Tensor& bias, bool activated) {
  const int64_t count = taps.size(1), tokens = inputs.size(1) - (count - 1);
  at::Tensor sum = inputs.narrow(1, 0, tokens) * taps.select(1, 0);
  for (int64_t tap = 1; tap < count; ++tap) sum.addcmul_(inputs.narrow(1, tap, tokens), taps.select(1, tap));
  if (bias.defined()) sum.add_(bias);
  return activated ? at::silu_(sum) : sum;
}

template <typename Cut>
std::vector<at::Tensor> cut(const std::vector<at::Tensor>& all, const Cut& one) {
  std::vector<at::Tensor> parts;
  parts.reserve(all.size());
  for (const at::Tensor& x : all) parts.push_back(one(x));
  return parts;
}

}  // namespace

RecurrentBlock::Convolution RecurrentBlock::convolution(const std::vector<Weight>& taps,
                                                        const std::vector<Weight>& biases, bool activated) {
  std::vector<at::Tensor> parts, added;
  for (const Weight& part : taps) {
    const at::Tensor value = part.value().to(at::kFloat);
    parts.push_back(value.reshape({-1, value.size(-1)}));
  }
  for (const Weight& bias : biases) added.push_back(bias.value().to(at::kFloat));
  return {.taps = at::cat(parts), .bias = added.empty() ? at::Tensor() : at::cat(added), .activated = activated};
}

/// Runs the rows of one sequence, from the state of its slot where it goes on.
at::Tensor RecurrentBlock::run_sequence(const at::Tensor& mixed, const std::vector<at::Tensor>& factors,
                                        const Convolution& convolution, at::IntArrayRef shape,
                                        const ops::SequenceSpan& span, LayerState* state, int64_t slot) const {
  const auto own = [&](const at::Tensor& x) { return x.narrow(0, span.first, span.tokens); };
  const bool goes_on = state && span.context > 0;
  const int64_t kept = convolution.taps.size(1) - 1;
  const at::Tensor before = goes_on ? state->inputs[slot] : at::zeros({kept, mixed.size(1)}, mixed.options());
  const at::Tensor inputs = at::cat({before, own(mixed)});
  at::Tensor matrices;
  if (!shape.empty()) matrices = goes_on ? state->matrices[slot] : at::zeros(shape, mixed.options());
  const at::Tensor rows =
      convolved(inputs.unsqueeze(0), convolution.taps, convolution.bias, convolution.activated).squeeze(0);
  at::Tensor result = read({.convolved = rows, .factors = cut(factors, own), .matrices = matrices});
  if (state) {
    state->inputs[slot].copy_(inputs.narrow(0, span.tokens, kept));
    if (matrices.defined()) state->matrices[slot].copy_(matrices);
  }
  return result;
}

/// Runs one row of each of several sequences that go on.
at::Tensor RecurrentBlock::run_tokens(const at::Tensor& mixed, const std::vector<at::Tensor>& factors,
                                      const Convolution& convolution, const at::Tensor& rows, const at::Tensor& slots,
                                      LayerState& state) const {
  const auto own = [&](const at::Tensor& x) { return x.index_select(0, rows); };
  const at::Tensor inputs = at::cat({state.inputs.index_select(0, slots), own(mixed).unsqueeze(1)}, 1);
  state.inputs.index_copy_(0, slots, inputs.narrow(1, 1, convolution.taps.size(1) - 1));
  at::Tensor matrices = state.matrices.defined() ? state.matrices.index_select(0, slots) : at::Tensor();
  at::Tensor result =
      read({.convolved = convolved(inputs, convolution.taps, convolution.bias, convolution.activated).squeeze(1),
            .factors = cut(factors, own),
            .matrices = matrices,
            .single = true});
  if (matrices.defined()) state.matrices.index_copy_(0, slots, matrices);
  return result;
}

at::Tensor RecurrentBlock::run(const at::Tensor& mixed, const std::vector<at::Tensor>& factors,
                               const Convolution& convolution, at::IntArrayRef shape, const Batch& batch,
                               LayerState* state) const {
  at::Tensor result;
  const auto results = [&](const at::Tensor& some) -> at::Tensor& {
    if (!result.defined()) result = at::empty({mixed.size(0), some.size(1)}, some.options());
    return result;
  };
  std::vector<int64_t> rows, slots;  // of sequences that go on with one token
  const std::vector<ops::SequenceSpan>& spans = batch.sequences.spans;
  for (size_t i = 0; i < spans.size(); ++i) {
    const int64_t slot = state ? batch.state_slots.at(i) : 0;
    if (state && spans[i].tokens == 1 && spans[i].context > 0) {
      rows.push_back(spans[i].first);
      slots.push_back(slot);
    } else {
      const at::Tensor made = run_sequence(mixed, factors, convolution, shape, spans[i], state, slot);
      results(made).narrow(0, spans[i].first, spans[i].tokens).copy_(made);
    }
  }
  if (!rows.empty()) {
    const auto on_device = [&](const std::vector<int64_t>& numbers) {
      return ops::to_device(at::tensor(numbers, at::kLong), mixed.device());
    };
    const at::Tensor of_rows = on_device(rows);
    const at::Tensor made = run_tokens(mixed, factors, convolution, of_rows, on_device(slots), *state);
    results(made).index_copy_(0, of_rows, made);
  }
  return result;
}

std::unique_ptr<const RecurrentBlock> make_recurrent(const policy::Recurrent& block, Loader& loader) {
  if (const auto* net = std::get_if<policy::DeltaNet>(&block.kind)) return std::make_unique<DeltaNet>(*net, loader);
  if (const auto* space = std::get_if<policy::StateSpace>(&block.kind))
    return std::make_unique<StateSpace>(*space, loader);
  return std::make_unique<ShortConvolution>(std::get<policy::ShortConvolution>(block.kind), loader);
}

}  // namespace pm::layers
