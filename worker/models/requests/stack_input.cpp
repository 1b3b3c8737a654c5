// SPDX-License-Identifier: Apache-2.0
#include "worker/models/requests/stack_input.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "worker/models/requests/request_tensors.h"

namespace pm::models {

int64_t StackInput::batch_rows() const { return places.size(0); }

at::Tensor StackInput::padded(const at::Tensor& values) const {
  at::Tensor out = at::zeros({rows * length, values.size(1)}, values.options());
  out.index_copy_(0, places.to(values.device()), values);
  return out.reshape({rows, length, values.size(1)});
}

at::Tensor StackInput::padded(const std::vector<at::Tensor>& of_sequences, const StackInput& keys, float hidden) const {
  at::Tensor whole = at::full({rows, of_sequences[0].size(0), length, keys.length}, hidden,
                              of_sequences[0].options().dtype(at::kFloat));
  for (size_t row = 0; row < of_sequences.size(); ++row) {
    const ops::SequenceSpan& span = keys.batch.sequences.spans[row];
    const at::Tensor seen =
        keys.columns[row].narrow(0, span.key_row - span.first, of_sequences[row].size(2));  // padding is no key
    whole[static_cast<int64_t>(row)].index_put_({at::indexing::Slice(), columns[row].unsqueeze(1), seen.unsqueeze(0)},
                                                of_sequences[row]);
  }
  return whole;
}

at::Tensor StackInput::padded_windows(const std::vector<at::Tensor>& of_sequences,
                                      const std::vector<at::Tensor>& global) const {
  int64_t most = 0;
  for (const at::Tensor& one : global) most = std::max(most, one.size(2));
  const int64_t others = of_sequences[0].size(2) - global[0].size(2);
  at::Tensor whole =
      at::zeros({rows, of_sequences[0].size(0), length, most + others}, of_sequences[0].options().dtype(at::kFloat));
  for (size_t row = 0; row < of_sequences.size(); ++row) {
    const at::Tensor places = columns[row].to(whole.device());
    const int64_t globals = global[row].size(2);
    at::Tensor own = whole[static_cast<int64_t>(row)];
    own.narrow(2, 0, globals).index_copy_(1, places, of_sequences[row].narrow(2, 0, globals));
    own.narrow(2, most, others).index_copy_(1, places, of_sequences[row].narrow(2, globals, others));
  }
  return whole;
}

void lay_out(const std::string& name, const at::Tensor& mask, StackInput& stack_input) {
  stack_input.rows = mask.size(0);
  stack_input.length = mask.size(1);
  std::vector<at::Tensor> places;
  int64_t first = 0;
  for (int64_t row = 0; row < stack_input.rows; ++row) {
    const at::Tensor columns = mask[row].nonzero().squeeze(1);
    const int64_t count = columns.numel();
    if (count == 0) refuse("row " + std::to_string(row) + " of " + name + " is all zero");
    stack_input.batch.sequences.spans.push_back(
        {.first = first, .tokens = count, .context = 0, .keys = count, .key_row = first, .blocks = {}});
    stack_input.columns.push_back(columns);
    places.push_back(columns + row * stack_input.length);
    first += count;
  }
  stack_input.places = at::cat(places);
}

void hide_padding(const policy::Model& model, const std::string& name, const at::Tensor& mask,
                  StackInput& stack_input) {
  for (int64_t row = 0; row < mask.size(0); ++row) {
    const at::Tensor seen = mask[row].nonzero().squeeze(1);
    const int64_t count = seen.numel();
    if (count == 0) refuse("row " + std::to_string(row) + " of " + name + " is all zero");
    const int64_t first = seen[0].item<int64_t>();
    if (seen[-1].item<int64_t>() - first != count - 1)
      refuse("row " + std::to_string(row) + " of " + name + " has a 0 between ones; tokens of " + model.architecture +
             " read their neighbors, so that padding has to stand before or behind the text");
    ops::SequenceSpan& span = stack_input.batch.sequences.spans[static_cast<size_t>(row)];
    span.keys = count;
    span.key_row = span.first + first;
  }
}

StackInput with_rows(const StackInput& input, const layers::PooledRows& rows) {
  StackInput made;
  made.batch.sequences.spans = rows.spans;
  made.rows = input.rows;
  made.length = made.tokens = rows.spans.empty() ? 0 : rows.spans[0].tokens;
  for (const ops::SequenceSpan& span : rows.spans) made.columns.push_back(at::arange(span.tokens, at::kLong));
  made.places = at::arange(rows.count(), at::kLong);
  return made;
}

const StackInput& Inputs::rows_of(const std::string& stack, std::optional<int64_t> number) const {
  const auto found = rows_of_states.find(stack);
  if (found == rows_of_states.end()) return stack_inputs.at(stack);
  return number ? found->second.at(static_cast<size_t>(*number)) : found->second.back();
}

at::Tensor Inputs::head_input(const std::string& name) const {
  const auto found = head_inputs.find(name);
  return found == head_inputs.end() ? at::Tensor() : found->second;
}

Inputs Inputs::on(at::Device device) && {
  for (auto& [stack, stack_input] : stack_inputs) {
    stack_input.batch = std::move(stack_input.batch).on(device);
    for (at::Tensor& columns : stack_input.columns) columns = columns.to(device);
    if (const auto states = rows_of_states.find(stack); states != rows_of_states.end()) {
      for (StackInput& rows : states->second) {
        for (at::Tensor& columns : rows.columns) columns = columns.to(device);
        rows.places = rows.places.to(device);
      }
    }
    for (at::Tensor* tensor : {&stack_input.places, &stack_input.entity_starts, &stack_input.entity_ends})
      if (tensor->defined()) *tensor = tensor->to(device);
  }
  for (auto& [name, tensor] : head_inputs) tensor = tensor.to(device);
  return std::move(*this);
}

}  // namespace pm::models
