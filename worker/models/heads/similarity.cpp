// SPDX-License-Identifier: Apache-2.0
#include "worker/models/heads/similarity.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace pm::models {

SimilarityHead::SimilarityHead(const policy::Model& model, const policy::Head& head,
                               const policy::SimilaritySpec& similarity, layers::Loader& loader)
    : Head(model, head), spec_(similarity) {
  if (spec_.scalar) temperature_ = std::exp(loader.load(*spec_.scalar).to(at::kDouble).item<double>());
}

void SimilarityHead::run(std::span<RequestForward> requests) const {
  for (RequestForward& request : requests) {
    std::vector<at::Tensor> sides;
    for (const std::string& name : spec_.between) {
      const auto found = request.vectors.find(name);
      if (found == request.vectors.end()) continue;
      sides.push_back(found->second / found->second.norm(2, -1, /*keepdim=*/true));
      const policy::Head& one = *std::find_if(model_.heads.begin(), model_.heads.end(),
                                              [&](const policy::Head& head) { return head.name == name; });
      const std::string pooled =
          stack_names(model_, *model_.stack(one.stack)).pooled;  // Hugging Face's CLIPModel projects there
      if (request.wants(pooled, true)) request.put(pooled, found->second);
      if (request.wants(one.outputs[0], true)) request.put(one.outputs[0], sides.back());
    }
    if (sides.size() != 2) continue;
    const at::Tensor text = at::mm(sides[0], sides[1].t()) * temperature_;
    if (request.wants("logits_per_text", true)) request.put("logits_per_text", text);
    if (request.wants("logits_per_image", true)) request.put("logits_per_image", text.t());
  }
}

}  // namespace pm::models
