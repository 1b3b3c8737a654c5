// SPDX-License-Identifier: Apache-2.0
#include "worker/models/stage_rows.h"

#include <ATen/ATen.h>

#include <utility>

#include "worker/models/stage_keys.h"

namespace pm::models {

StageRows::StageRows(const policy::Stack& stack, const Stack& here, StageState& handed, layers::Batch& batch)
    : stack_(stack), here_(here), handed_(handed), batch_(batch) {
  if (const auto inputs = handed.find(stage_key("layer_inputs", stack)); inputs != handed.end())
    batch.layer_inputs = std::exchange(inputs->second, {});
  const bool alone = here.range().begin == 0 && here.ends();
  if (alone || !policy::shares_keys(stack)) return;
  for (int64_t layer = 0; layer < here.range().begin; ++layer) {
    const auto keys = handed.find(stage_key("keys", stack, layer)),
               values = handed.find(stage_key("values", stack, layer));
    if (keys == handed.end() || !keys->second.defined()) continue;
    shared_[layer] = {std::exchange(keys->second, {}), std::exchange(values->second, {})};
  }
  batch.shared_keys = &shared_;
}

void StageRows::hand_on() {
  if (batch_.layer_inputs.defined() && !here_.ends()) handed_[stage_key("layer_inputs", stack_)] = batch_.layer_inputs;
  for (auto& [layer, made] : shared_) {
    handed_[stage_key("keys", stack_, layer)] = made.first.to(at::kFloat).contiguous();  // as all that stages pass on
    handed_[stage_key("values", stack_, layer)] = made.second.to(at::kFloat).contiguous();
  }
  batch_.shared_keys = nullptr;
}

}  // namespace pm::models
