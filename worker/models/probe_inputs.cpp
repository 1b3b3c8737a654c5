// SPDX-License-Identifier: Apache-2.0
#include "worker/models/probe_inputs.h"

#include "worker/models/heads/heads.h"
#include "worker/models/separators.h"

namespace pm::models {

namespace {

Array token_ids(const policy::Model& model, const policy::Stack& stack, int64_t tokens) {
  const int64_t id = model.eos.empty() || model.eos[0] >= stack.vocab ? 0 : model.eos[0];
  const std::vector<int64_t> ids(static_cast<size_t>(tokens), id);
  return model.task == policy::Task::MultipleChoice ? Array{{1, 1, tokens}, ids} : Array{{1, tokens}, ids};
}

Array black_image(const policy::Stack& stack) {
  const int64_t channels = stack.input.projection->weight.shape[1];
  const auto [height, width] = stack.input.image_size();
  return {{1, channels, height, width}, std::vector<float>(static_cast<size_t>(channels * height * width))};
}

}  // namespace

Arrays probe_inputs(const policy::Model& model) {
  ProbeInputs inputs;
  add_head_probe_inputs(model, inputs);
  for (const policy::Stack& stack : model.stacks) {
    if (has_sliding_window(stack)) {  // global tokens have weights of their own; the class may find none by itself
      Array mask = token_ids(model, stack, inputs.tokens);
      std::get<std::vector<int64_t>>(mask.values).assign(static_cast<size_t>(inputs.tokens), 1);
      inputs.arrays["global_attention_mask"] = std::move(mask);
    }
    if (stack.input.token)
      inputs.arrays["input_ids"] = token_ids(model, stack, inputs.tokens);
    else
      inputs.arrays["pixel_values"] = black_image(stack);
  }
  return std::move(inputs.arrays);
}

}  // namespace pm::models
