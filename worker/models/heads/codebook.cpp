// SPDX-License-Identifier: Apache-2.0
#include "worker/models/heads/codebook.h"

#include <ATen/ATen.h>

namespace pm::models {

void CodebookHead::validate(const policy::Model& model, const policy::Head& head, const policy::CodebookSpec&) {
  const policy::Stack* stack = model.stack(head.stack);
  if (!stack || !stack->input.convolutions || model.stacks.size() > 1)
    policy::refuse_architecture(model, "has a codebook of something else than audio");
}

CodebookHead::CodebookHead(const policy::Model& model, const policy::Head& head, const policy::CodebookSpec& spec,
                           layers::Loader& loader)
    : Head(model, head),
      groups_(spec.groups),
      states_(spec.states, loader),
      scores_(spec.scores, loader),
      quantized_(spec.quantized, loader) {
  const at::Tensor all = loader.load(spec.entries).to(at::kFloat);
  entries_ = all.reshape({groups_, all.size(0) / groups_, all.size(1)});
}

void CodebookHead::run(std::span<RequestForward> requests) const {
  for (RequestForward& request : requests) {
    if (request.comm.rank() != 0 || !needs_head(model_, head_, request)) continue;
    const StackInput& stack_input = request.inputs.stack_inputs.at(head_.stack);
    const at::Tensor& features = request.features.at(head_.stack);
    const int64_t frames = features.size(0), entries = entries_.size(1);
    const at::Tensor best = scores_(features).reshape({frames, groups_, entries}).argmax(-1);
    std::vector<at::Tensor> parts;
    at::Tensor perplexity = at::zeros({}, features.options());
    for (int64_t group = 0; group < groups_; ++group) {
      const at::Tensor chosen = best.select(1, group);
      parts.push_back(at::index_select(entries_[group], 0, chosen));
      const at::Tensor share = at::bincount(chosen, /*weights=*/{}, entries).to(at::kFloat) / frames;
      perplexity = perplexity + at::exp(-at::xlogy(share, share).sum());
    }
    const auto put = [&](size_t output, const at::Tensor& value) {
      if (request.wants(head_.outputs[output], true)) request.put(head_.outputs[output], value);
    };
    put(0, stack_input.padded(states_(request.states.at(head_.stack))));
    put(1, stack_input.padded(quantized_(at::cat(parts, 1))));
    put(2, perplexity);
  }
}

}  // namespace pm::models
