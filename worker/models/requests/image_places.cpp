// SPDX-License-Identifier: Apache-2.0
#include "worker/models/requests/image_places.h"

#include <ATen/ATen.h>

#include "worker/models/requests/request_tensors.h"

namespace pm::models {

void place_images(const policy::Stack& stack, const Inputs& inputs, StackInput& stack_input) {
  const auto& images = stack.input.images;
  const auto tower = images ? inputs.stack_inputs.find(images->stack) : inputs.stack_inputs.end();
  if (tower == inputs.stack_inputs.end()) return;
  at::Tensor places = (stack_input.batch.tokens == images->token).nonzero().squeeze(1);
  const at::Tensor& squares = tower->second.batch.patches.squares;
  const int64_t rows = squares.defined() ? squares.numel() : tower->second.rows * images->rows;
  if (places.numel() != rows)
    refuse("input_ids has " + std::to_string(places.numel()) + " tokens of images (id " +
           std::to_string(images->token) + "), pixel_values has " + std::to_string(tower->second.rows) + " images of " +
           (squares.defined() ? std::to_string(rows) + " tokens together"
                              : std::to_string(images->rows) + " tokens each"));
  stack_input.batch.images.places = std::move(places);
}

void find_bidirectional_tokens(const at::Tensor& types, StackInput& stack_input) {
  if (!types.defined()) return;
  const at::Tensor own = at::index_select(types.flatten(), 0, stack_input.places);
  const auto* type = own.const_data_ptr<int64_t>();
  for (ops::SequenceSpan& span : stack_input.batch.sequences.spans) {
    for (int64_t i = 0; i < span.tokens; ++i) {
      if (type[span.first + i] != 1) continue;
      if (!span.bidirectional.empty() && span.bidirectional.back().end == i)
        ++span.bidirectional.back().end;
      else
        span.bidirectional.push_back({i, i + 1});
    }
  }
}

}  // namespace pm::models
