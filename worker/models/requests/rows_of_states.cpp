// SPDX-License-Identifier: Apache-2.0
#include "worker/models/requests/rows_of_states.h"

#include "worker/layers/patterns/cross_block.h"
#include "worker/models/requests/request_tensors.h"

namespace pm::models {

std::vector<StackInput> pooled_rows(const policy::Model& model, const std::string& mask, const policy::Stack& stack,
                                    const StackInput& stack_input) {
  const layers::PooledRows tokens(stack_input.batch.sequences.spans);
  layers::PooledRows rows = tokens;
  std::vector<StackInput> all{with_rows(stack_input, tokens)};
  for (const policy::Layer& layer : stack.layers) {
    if (layer.upsampling) all.push_back(with_rows(stack_input, rows = tokens));
    if (layer.pooling) rows = layers::pool_rows(*layer.pooling, rows).rows;
    for (size_t row = 0; row < rows.spans.size(); ++row) {
      if (rows.spans[row].keys == 0)
        refuse("row " + std::to_string(row) + " of " + mask + " leaves no token: " + model.architecture +
               " pools tokens with the padding beside them, which then is all there is; give it less padding, behind "
               "the text");
    }
    all.push_back(with_rows(stack_input, rows));
  }
  return all;
}

std::vector<StackInput> latent_rows(const policy::Stack& stack, const StackInput& stack_input) {
  const size_t sequences = stack_input.batch.sequences.spans.size();
  const auto of_each = [&](int64_t count) {
    return with_rows(stack_input, layers::PooledRows(layers::equal_spans(sequences, count)));
  };
  const StackInput latents = of_each(stack.input.latents->vectors.shape.at(0));
  const int64_t states = policy::hidden_state_of(stack, static_cast<int64_t>(stack.layers.size())) + 1;
  std::vector<StackInput> all(static_cast<size_t>(states), latents);
  const auto& queries = stack.output.queries;
  if (queries && queries->vectors) {
    all.push_back(of_each(queries->vectors->shape.at(0)));
  } else if (queries) {
    StackInput& rows = all.emplace_back(stack_input);
    rows.batch = {};
    rows.batch.sequences.spans = stack_input.batch.sequences.spans;
  } else {
    all.push_back(latents);
  }
  return all;
}

}  // namespace pm::models
