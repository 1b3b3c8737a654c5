// SPDX-License-Identifier: Apache-2.0
#include "worker/models/requests/request_memory.h"

#include <ATen/ATen.h>

#include "worker/models/requests/arrays.h"

namespace pm::models {

std::vector<at::Tensor> read_memory(const policy::Stack& stack, int64_t rows, RequestTensors& tensors) {
  if (!stack.memory) return {};
  const auto& [length, input] = *stack.memory;
  const std::vector<int64_t> expected{rows, length, stack.hidden};
  std::vector<at::Tensor> memory;
  std::string missing;
  for (size_t layer = 0; layer < stack.layers.size(); ++layer) {
    const std::string name = input + "." + std::to_string(layer);
    const Array* array = tensors.find(name);
    if (!array) {
      if (missing.empty()) missing = name;
      continue;
    }
    if (!std::holds_alternative<std::vector<float>>(array->values)) refuse(name + " has integers, expected fp32");
    if (array->shape != expected)
      refuse(name + " has the shape " + c10::str(at::IntArrayRef(array->shape)) + ", expected [rows, memory, width], " +
             c10::str(at::IntArrayRef(expected)) + "; transformers has the memory before the rows");
    memory.push_back(tensor_of(*array).flatten(0, 1).clone());  // the request may end before the pass
  }
  if (!memory.empty() && !missing.empty())
    refuse("the inputs have memories without \"" + missing + "\"; give one for each of the " +
           std::to_string(stack.layers.size()) + " layers, or none");
  return memory;
}

void append_memory(std::vector<at::Tensor>& all, int64_t rows_before, const std::vector<at::Tensor>& more,
                   int64_t rows) {
  if (more.empty() && all.empty()) return;
  const auto zeros_beside = [](const at::Tensor& other, int64_t others, int64_t own) {
    return at::zeros({other.size(0) / others * own, other.size(1)}, other.options());
  };
  if (all.empty())
    for (const at::Tensor& one : more) all.push_back(zeros_beside(one, rows, rows_before));
  for (size_t layer = 0; layer < all.size(); ++layer)
    all[layer] = at::cat({all[layer], more.empty() ? zeros_beside(all[layer], rows_before, rows) : more[layer]});
}

StackInput memory_keys(const policy::Memory& memory, const StackInput& tokens) {
  StackInput keys;
  keys.rows = tokens.rows;
  keys.length = memory.length + tokens.length;
  for (const at::Tensor& columns : tokens.columns) {
    keys.columns.push_back(at::cat({at::arange(memory.length, columns.options()), columns + memory.length}));
    keys.batch.sequences.spans.push_back({});
  }
  return keys;
}

at::Tensor next_memory(const policy::Memory& memory, const StackInput& tokens, const at::Tensor& before,
                       const at::Tensor& states) {
  std::vector<at::Tensor> rows;
  for (size_t row = 0; row < tokens.batch.sequences.spans.size(); ++row) {
    const ops::SequenceSpan& span = tokens.batch.sequences.spans[row];
    const at::Tensor own = states.narrow(0, span.first, span.tokens),
                     old = before.defined() ? before.narrow(0, static_cast<int64_t>(row) * memory.length, memory.length)
                                            : at::zeros({memory.length, states.size(1)}, states.options());
    rows.push_back(at::cat({old, own}).narrow(0, span.tokens, memory.length));
  }
  return at::stack(rows);
}

}  // namespace pm::models
