// SPDX-License-Identifier: Apache-2.0
#include "worker/models/heads/logits.h"

#include <ATen/ATen.h>

#include <numeric>

namespace pm::models {

LanguageModelHead::LanguageModelHead(const policy::Model& model, const policy::Head& head,
                                     const policy::LogitsSpec& logits, layers::Loader& loader)
    : ScoringHead(model, head, loader, /*one_column=*/false),
      transform_(logits.transform, loader),
      logits_(logits, loader) {}

at::Tensor LanguageModelHead::scores(const at::Tensor& states, comm::Communicator& comm) const {
  return logits_.gathered(features(states), comm);
}

at::Tensor LanguageModelHead::score(const at::Tensor& states, comm::Communicator& comm) const {
  const auto& columns = logits_.columns();
  return in_pieces(states, std::accumulate(columns.begin(), columns.end(), int64_t{0}),
                   [&](const at::Tensor& some) { return scores(some, comm); });
}

}  // namespace pm::models
