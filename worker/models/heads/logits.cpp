// SPDX-License-Identifier: Apache-2.0
#include "worker/models/heads/logits.h"

#include <ATen/ATen.h>

#include <algorithm>
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

/// Copies the scores from a device to the CPU in blocks of rows, because together they would exceed all other memory of
/// the forward pass.
at::Tensor LanguageModelHead::score(const at::Tensor& states, comm::Communicator& comm) const {
  constexpr int64_t most = int64_t{1} << 22;  // of a block
  if (states.device().is_cpu()) return scores(states, comm);
  const auto& columns = logits_.columns();
  const int64_t rows = states.size(0),
                piece = std::max<int64_t>(1, most / std::accumulate(columns.begin(), columns.end(), int64_t{1}));
  std::vector<at::Tensor> pieces;
  for (int64_t row = 0; row < rows; row += piece) {
    const at::Tensor some = scores(states.narrow(0, row, std::min(piece, rows - row)), comm);
    if (some.defined()) pieces.push_back(some.cpu());
  }
  return pieces.empty() ? at::Tensor() : at::cat(pieces);
}

}  // namespace pm::models
