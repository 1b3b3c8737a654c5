// SPDX-License-Identifier: Apache-2.0
#include "worker/models/heads/pairs.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

namespace pm::models {

void PairsHead::validate(const policy::Model& model, const policy::Head& head, const policy::PairsSpec&) {
  const policy::Stack* stack = model.stack(head.stack);
  if (!stack || !stack->input.features)
    policy::refuse_architecture(model, "has pairs of tokens and dense vectors without such vectors");
}

void PairsHead::read_inputs(const policy::Model& model, const policy::PairsSpec& pairs, const StackInput& stack_input,
                            RequestTensors& tensors, Inputs& inputs) {
  const int64_t rows = stack_input.rows, length = stack_input.length;
  at::Tensor chosen = tensors.tensor(pairs.chosen, 2, "[batch, tokens]");
  if (!chosen.defined())
    refuse("the inputs have no tensor \"" + pairs.chosen +
           "\", the columns of tokens that are compared with the vectors behind them");
  if (!stack_input.batch.features.values.defined())
    refuse(model.architecture + " compares tokens with vectors, and the inputs have none");
  if (chosen.size(0) != rows)
    refuse(pairs.chosen + " has " + std::to_string(chosen.size(0)) + " rows, input_ids has " + std::to_string(rows));
  if (chosen.is_floating_point() && !(chosen == chosen.floor()).all().item<bool>())
    refuse(pairs.chosen + " has fractional values, expected integers");
  chosen = chosen.to(at::kLong);
  check_range(pairs.chosen, chosen, -1, length, "columns");
  inputs.head_inputs[pairs.chosen] = chosen;
}

void PairsHead::add_probe_inputs(const policy::Model& model, const policy::Head& head, const policy::PairsSpec& pairs,
                                 ProbeInputs& inputs) {
  const policy::Features& features = *model.stack(head.stack)->input.features;
  const int64_t width = features.projection.weight.shape[1];
  inputs.arrays[features.input] = {{1, 1, width}, std::vector<float>(static_cast<size_t>(width))};
  inputs.arrays[pairs.chosen] = {{1, 1}, std::vector<int64_t>{0}};
}

PairsHead::PairsHead(const policy::Model& model, const policy::Head& head, const policy::PairsSpec& pairs,
                     layers::Loader& loader)
    : Head(model, head), query_(pairs.query, loader), key_(pairs.key, loader), chosen_(pairs.chosen) {}

void PairsHead::run(std::span<RequestForward> requests) const {
  for (RequestForward& request : requests) {
    if (request.comm.rank() != 0 || !needs_head(model_, head_, request)) continue;
    const at::Tensor& states = request.states.at(head_.stack);
    const StackInput& stack_input = request.inputs.stack_inputs.at(head_.stack);
    const at::Tensor mask = stack_input.padded(at::ones({states.size(0), 1}, states.options())).squeeze(2);
    request.put(head_.outputs[0],
                scores(stack_input.padded(states), request.inputs.head_input(chosen_), mask, stack_input.tokens));
  }
}

/// Scores [rows, chosen, vectors] of chosen tokens with the dense vectors that stand in the columns from `first` on, by
/// their states [rows, length, hidden]. `chosen` [rows, chosen] int64: columns, -1: the first. Where `mask` [rows,
/// length] is 0 the lowest number, as transformers has there.
at::Tensor PairsHead::scores(const at::Tensor& states, const at::Tensor& chosen, const at::Tensor& mask,
                             int64_t first) const {
  const int64_t rows = states.size(0), length = states.size(1), vectors = length - first;
  const at::Tensor columns = chosen.clamp_min(0) + (at::arange(rows, chosen.options()) * length).unsqueeze(1);
  const at::Tensor queries =
      query_(at::index_select(states.flatten(0, 1), 0, columns.flatten())).reshape({rows, chosen.size(1), -1});
  const at::Tensor keys = key_(states.narrow(1, first, vectors).flatten(0, 1)).reshape({rows, vectors, -1});
  const at::Tensor scores = at::bmm(queries, keys.transpose(1, 2)) / std::sqrt(static_cast<double>(keys.size(2)));
  return scores.masked_fill(mask.narrow(1, first, vectors).unsqueeze(1) == 0,
                            static_cast<double>(std::numeric_limits<float>::lowest()));
}

}  // namespace pm::models
