// SPDX-License-Identifier: Apache-2.0
#include "worker/models/heads/head.h"

#include <algorithm>
#include <array>

namespace pm::models {

namespace {

bool contains(const std::array<std::string, 2>& names, const std::string& name) {
  return names[0] == name || names[1] == name;
}

}  // namespace

bool is_compared(const policy::Model& model, const std::string& name) {
  return std::any_of(model.heads.begin(), model.heads.end(), [&](const policy::Head& head) {
    const auto* similarity = head.as<policy::SimilaritySpec>();
    return similarity && contains(similarity->between, name);
  });
}

bool is_averaged(const policy::Model& model, const std::string& name) {
  return std::any_of(model.heads.begin(), model.heads.end(), [&](const policy::Head& head) {
    const auto* mean = head.as<policy::MeanSpec>();
    return mean && contains(mean->of, name);
  });
}

bool wants_last_logits(const policy::Model& model, const policy::Head& head, const RequestForward& request) {
  return request.wants(last_logits, false) && model.generates() && head.as<policy::LogitsSpec>() && !head.pool() &&
         !head.entities && !head.streams && request.inputs.choices == 0 &&
         !request.inputs.stack_inputs.at(head.stack).has_targets && !model.stack(head.stack)->input.features;
}

bool needs_head(const policy::Model& model, const policy::Head& head, const RequestForward& request) {
  const auto stack_input = request.inputs.stack_inputs.find(head.stack);
  if (stack_input == request.inputs.stack_inputs.end()) return false;
  if (head.entities && !stack_input->second.batch.entities.ids.defined()) return false;
  return request.wants_any(head.outputs) || wants_last_logits(model, head, request) || is_compared(model, head.name) ||
         is_averaged(model, head.name);
}

}  // namespace pm::models
