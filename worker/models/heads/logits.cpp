// SPDX-License-Identifier: Apache-2.0
#include "worker/models/heads/logits.h"

#include <ATen/ATen.h>

#include <numeric>

namespace pm::models {

LanguageModelHead::LanguageModelHead(const policy::Model& model, const policy::Head& head,
                                     const policy::LogitsSpec& logits, layers::Loader& loader)
    : VocabularyHead(model, head, loader, /*one_column=*/false),
      transform_(logits.transform, loader),
      logits_(logits, loader) {}

at::Tensor LanguageModelHead::scores(const at::Tensor& states, comm::Communicator& comm) const {
  return logits_.gathered(transform_(states), comm);
}

at::Tensor LanguageModelHead::best(const at::Tensor& states, comm::Communicator& comm) const {
  const auto [value, index] = logits_.best(transform_(states));
  if (comm.size() == 1) return index;
  const at::Tensor mine =
      at::stack({value.to(at::kDouble), (index + logits_.first()).to(at::kDouble)}).unsqueeze(0);  // [1, 2, rows]
  const std::vector<int64_t> ones(static_cast<size_t>(comm.size()), 1);
  const at::Tensor all = comm.gatherv(mine.contiguous(), ones, 0);  // [ranks, 2, rows]
  if (comm.rank() != 0) return {};
  at::Tensor best = all[0][0].clone(), token = all[0][1].clone();
  for (int64_t rank = 1; rank < all.size(0); ++rank) {
    const at::Tensor better = all[rank][0] > best;
    best = at::where(better, all[rank][0], best);
    token = at::where(better, all[rank][1], token);
  }
  return token.to(at::kLong);
}

at::Tensor LanguageModelHead::score(const at::Tensor& states, comm::Communicator& comm) const {
  const auto& columns = logits_.columns();
  return in_pieces(states, std::accumulate(columns.begin(), columns.end(), int64_t{0}),
                   [&](const at::Tensor& some) { return scores(some, comm); });
}

}  // namespace pm::models
