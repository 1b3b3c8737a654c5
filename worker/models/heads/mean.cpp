// SPDX-License-Identifier: Apache-2.0
#include "worker/models/heads/mean.h"

#include <ATen/ATen.h>

namespace pm::models {

void MeanHead::validate(const policy::Model& model, const policy::Head& head, const policy::MeanSpec& mean) {
  /// The linear of the head `name` if it stands before this one and has one vector per sequence, or nullptr.
  const auto classes = [&](const std::string& name) -> const policy::Linear* {
    for (const policy::Head& before : model.heads) {
      if (&before == &head) return nullptr;
      if (before.name != name) continue;
      const auto* classes = before.as<policy::ClassesSpec>();
      return classes && classes->pool && classes->linear ? &*classes->linear : nullptr;
    }
    return nullptr;
  };
  const policy::Linear *first = classes(mean.of[0]), *second = classes(mean.of[1]);
  if (!first || !second || first->weight.shape != second->weight.shape)
    policy::refuse_architecture(
        model,
        "has a mean of heads that do not stand before it, each with one vector per sequence and as many classes");
}

MeanHead::MeanHead(const policy::Model& model, const policy::Head& head, const policy::MeanSpec& mean, layers::Loader&)
    : Head(model, head), spec_(mean) {}

void MeanHead::run(std::span<RequestForward> requests) const {
  for (RequestForward& request : requests) {
    if (request.comm.rank() != 0 || !request.inputs.stack_inputs.contains(head_.stack)) continue;
    if (!request.wants(head_.outputs[0], true)) continue;
    request.put(head_.outputs[0], (request.vectors.at(spec_.of[0]) + request.vectors.at(spec_.of[1])) / 2);
  }
}

}  // namespace pm::models
