// SPDX-License-Identifier: Apache-2.0
#include "worker/models/heads/time_delay.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace pm::models {

namespace {

/// Returns how many frames of a row's result count, of `frames` that are no padding and `length` of the padded row.
int64_t counted(const policy::TimeDelaySpec& spec, int64_t frames, int64_t length) {
  return std::min(frames - spec.reach(/*dilated=*/false), length - spec.reach(/*dilated=*/true));
}

}  // namespace

void TimeDelayHead::validate(const policy::Model& model, const policy::Head& head, const policy::TimeDelaySpec&) {
  const policy::Stack* stack = model.stack(head.stack);
  if (!stack || !stack->input.convolutions || model.stacks.size() > 1)
    policy::refuse_architecture(model, "has a time delay network over something else than audio");
}

void TimeDelayHead::read_inputs(const policy::Model& model, const policy::TimeDelaySpec& spec,
                                const StackInput& stack_input, RequestTensors&, Inputs&) {
  for (size_t row = 0; row < stack_input.batch.sequences.spans.size(); ++row) {
    const int64_t frames = stack_input.batch.sequences.spans[row].keys;
    if (counted(spec, frames, stack_input.length) < 2)
      refuse("row " + std::to_string(row) + " has " + std::to_string(frames) + " frames of audio, " +
             model.architecture + " needs at least " + std::to_string(2 + spec.reach(/*dilated=*/true)));
  }
}

void TimeDelayHead::add_probe_inputs(const policy::Model&, const policy::Head&, const policy::TimeDelaySpec& spec,
                                     ProbeInputs& inputs) {
  inputs.tokens = std::max(inputs.tokens, 2 + spec.reach(/*dilated=*/true));
}

TimeDelayHead::TimeDelayHead(const policy::Model& model, const policy::Head& head, const policy::TimeDelaySpec& spec,
                             layers::Loader& loader)
    : Head(model, head),
      spec_(spec),
      states_(head, loader),
      transform_(spec.transform, loader),
      vector_(spec.vector, loader),
      classes_(spec.classes, loader) {
  for (const policy::TimeDelayLayer& layer : spec.layers)
    layers_.push_back({loader.load(layer.linear.weight),
                       layer.linear.bias ? loader.load(*layer.linear.bias) : at::Tensor(), layer.taps, layer.dilation});
}

void TimeDelayHead::run(std::span<RequestForward> requests) const {
  for (RequestForward& request : requests) {
    if (request.comm.rank() != 0 || !needs_head(model_, head_, request)) continue;
    const StackInput& stack_input = request.inputs.stack_inputs.at(head_.stack);
    const at::Tensor states = transform_(states_(request));  // rows are laid out with their padding
    at::Tensor x = states.reshape({stack_input.rows, stack_input.length, states.size(1)}).transpose(1, 2);
    for (const Layer& layer : layers_) {
      const at::Tensor weight = layer.weight.to(at::kFloat);
      const at::Tensor kernel = weight.reshape({weight.size(0), layer.taps, -1}).transpose(1, 2);
      const at::Tensor bias = layer.bias.defined() ? layer.bias.to(at::kFloat) : layer.bias;
      const int64_t stride = 1, padding = 0;
      x = at::relu(at::conv1d(x, kernel, bias, stride, padding, layer.dilation));
    }
    std::vector<at::Tensor> statistics;
    for (int64_t row = 0; row < stack_input.rows; ++row) {
      const int64_t frames = stack_input.batch.sequences.spans[static_cast<size_t>(row)].keys;
      const at::Tensor those = x[row].narrow(1, 0, counted(spec_, frames, stack_input.length));
      statistics.push_back(at::cat({those.mean(1), those.std(1)}));
    }
    const at::Tensor vectors = vector_(at::stack(statistics));
    if (request.wants(head_.outputs[0], true)) request.put(head_.outputs[0], classes_(vectors));
    if (request.wants(head_.outputs[1], true)) request.put(head_.outputs[1], vectors);
  }
}

}  // namespace pm::models
