// SPDX-License-Identifier: Apache-2.0
#include "worker/models/heads/spans.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace pm::models {

void SpansHead::validate(const policy::Model& model, const policy::Head& head, const policy::SpansSpec&) {
  if (head.outputs.size() != 5)
    policy::refuse_architecture(model, "has spans with " + std::to_string(head.outputs.size()) + " outputs and not 5");
}

void SpansHead::read_inputs(const policy::Model& model, const policy::SpansSpec& spans, const StackInput& stack_input,
                            RequestTensors& tensors, Inputs& inputs) {
  const int64_t rows = stack_input.rows, length = stack_input.length;
  if (const int64_t most = std::max(spans.starts, spans.ends); length < most) {
    refuse("input_ids has rows of " + std::to_string(length) + " columns; " + model.architecture + " gives the " +
           std::to_string(most) + " best places of each row, so it needs as many");
  }
  const at::Tensor outside = tensors.mask("p_mask", {rows, length});
  if (outside.defined()) inputs.head_inputs["p_mask"] = outside;
  const at::Tensor none = tensors.tensor("cls_index", 1, "[batch]");
  if (!none.defined()) return;
  if (none.size(0) != rows || none.is_floating_point())
    refuse("cls_index has the shape " + c10::str(none.sizes()) + ", expected one integer for each of the " +
           std::to_string(rows) + " rows");
  check_range("cls_index", none, 0, length, "columns");
  inputs.head_inputs["cls_index"] = none;
}

void SpansHead::add_probe_inputs(const policy::Model&, const policy::Head&, const policy::SpansSpec& spans,
                                 ProbeInputs& inputs) {
  inputs.tokens = std::max({inputs.tokens, spans.starts, spans.ends});
}

SpansHead::SpansHead(const policy::Model& model, const policy::Head& head, const policy::SpansSpec& spans,
                     layers::Loader& loader)
    : Head(model, head), search_(spans, loader) {}

void SpansHead::run(std::span<RequestForward> requests) const {
  for (RequestForward& request : requests) {
    if (request.comm.rank() != 0 || !needs_head(model_, head_, request)) continue;
    const at::Tensor padded = request.inputs.stack_inputs.at(head_.stack).padded(request.states.at(head_.stack));
    const SpanSearchResult found =
        search_(padded, request.inputs.head_input("p_mask"), request.inputs.head_input("cls_index"));
    const at::Tensor* values[] = {&found.start_probabilities, &found.starts, &found.end_probabilities, &found.ends,
                                  &found.answer};
    for (size_t i = 0; i < std::size(values); ++i)
      if (request.wants(head_.outputs[i], true)) request.put(head_.outputs[i], *values[i]);
  }
}

}  // namespace pm::models
