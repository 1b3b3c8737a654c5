// SPDX-License-Identifier: Apache-2.0
#include "worker/models/requests/request_targets.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "worker/models/requests/arrays.h"

namespace pm::models {

namespace {

/// Returns zeros and ones of this shape as bool; undefined where the tensor is absent. A dimension of -1 may be any.
at::Tensor flags(const std::string& name, const std::vector<int64_t>& shape, RequestTensors& tensors) {
  const Array* array = tensors.find(name);
  if (!array) return {};
  const at::Tensor values = tensor_of(*array);
  bool fits = values.dim() == static_cast<int64_t>(shape.size());
  for (size_t i = 0; fits && i < shape.size(); ++i)
    fits = shape[i] < 0 ? values.size(static_cast<int64_t>(i)) > 0 : values.size(static_cast<int64_t>(i)) == shape[i];
  if (!fits) {
    std::string expected;
    for (const int64_t size : shape)
      expected += (expected.empty() ? "" : ", ") + (size < 0 ? "targets" : std::to_string(size));
    refuse(name + " has the shape " + c10::str(values.sizes()) + ", expected [" + expected + "]");
  }
  if (!values.eq(0).logical_or(values.eq(1)).all().item<bool>()) refuse(name + " has values other than 0 and 1");
  return values.ne(0);
}

}  // namespace

at::Tensor RequestTargets::mask() const { return positions.defined() ? at::ones_like(positions) : at::Tensor(); }

RequestTargets read_targets(const policy::Model& model, const policy::Stack& stack, const at::Tensor& ids,
                            const at::Tensor& mask, RequestTensors& tensors) {
  RequestTargets found;
  const bool read = std::all_of(model.heads.begin(), model.heads.end(), [](const policy::Head& head) {
    return head.as<policy::LogitsSpec>() && !head.pool();  // other heads read the states of tokens
  });
  if (!stack.input.targets || !read) return found;
  const policy::Targets& targets = *stack.input.targets;
  const int64_t rows = ids.size(0), length = ids.size(1);
  found.hidden = flags(targets.hidden, {rows, length, length}, tensors);
  const at::Tensor mapping = flags(targets.mapping, {rows, -1, length}, tensors);
  if (!mapping.defined()) return found;
  if (!mapping.sum(2).eq(1).all().item<bool>())
    refuse(targets.mapping + " has a target without one 1; each target is one token");
  found.positions = mapping.to(at::kLong).argmax(2);
  if (mapping.sum(1).gt(1).any().item<bool>())  // whose queries transformers adds up
    refuse(targets.mapping + " has two targets at one position; give each token once");
  if (!at::gather(mask, 1, found.positions).ne(0).all().item<bool>())
    refuse(targets.mapping + " has a target that is padding");
  return found;
}

at::Tensor beside_targets(const at::Tensor& of_tokens, const at::Tensor& of_targets, const StackInput& stack_input) {
  return at::index_select(at::cat({of_tokens, of_targets}, 1).flatten(), 0, stack_input.places);
}

void lay_out_targets(const RequestTargets& targets, bool causal, StackInput& stack_input) {
  if (!targets.positions.defined() && !targets.hidden.defined()) return;
  stack_input.has_targets = targets.positions.defined();
  const int64_t count = targets.positions.defined() ? targets.positions.size(1) : 0, length = stack_input.tokens;
  layers::Batch& batch = stack_input.batch;
  for (int64_t row = 0; row < stack_input.rows; ++row) {
    const auto number = static_cast<size_t>(row);
    ops::SequenceSpan& span = batch.sequences.spans[number];
    const int64_t tokens = span.keys = span.tokens - count;
    const at::Tensor columns = stack_input.columns[number].narrow(0, 0, tokens);
    const at::Tensor whole = targets.hidden.defined() ? targets.hidden[row] : at::zeros({length, length}, at::kBool);
    at::Tensor places = columns, hidden = at::index_select(whole, 0, columns);
    hidden = at::index_select(hidden, 1, columns).logical_and(at::eye(tokens, at::kBool).logical_not());
    if (count > 0) {
      const at::Tensor own = targets.positions[row];
      at::Tensor of_targets = at::index_select(at::index_select(whole, 0, own), 1, columns);
      if (causal) of_targets = of_targets.logical_or(columns.unsqueeze(0) > own.unsqueeze(1));
      places = at::cat({places, own});
      hidden = at::cat({hidden, of_targets});
    }
    if (tokens < length && hidden.all(1).any().item<bool>())
      refuse("row " + std::to_string(row) +
             " has a target that sees no token, beside padding, which it would see then");
    const at::Tensor listed = places.contiguous();
    const auto* first = listed.const_data_ptr<int64_t>();
    batch.columns[number].length = length;
    batch.columns[number].columns.assign(first, first + listed.numel());
    batch.hidden.push_back(hidden);
  }
}

}  // namespace pm::models
