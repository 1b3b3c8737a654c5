// SPDX-License-Identifier: Apache-2.0
#include "worker/models/heads/clusters.h"

#include <ATen/ATen.h>

namespace pm::models {

ClustersHead::ClustersHead(const policy::Model& model, const policy::Head& head, const policy::ClustersSpec& spec,
                           layers::Loader& loader)
    : VocabularyHead(model, head, loader, /*one_column=*/false), vocabulary_(head.scores()) {
  for (const policy::ScoreCluster& cluster : spec.clusters) {
    clusters_.push_back({loader.load(cluster.projection).to(at::kFloat), layers::LogitsHead(cluster.scores, loader)});
    if (spec.others && !others_) others_.emplace(*spec.others, loader);  // in the order in which they are used
  }
}

at::Tensor ClustersHead::scores(const at::Tensor& states, comm::Communicator& comm) const {
  const bool puts_out = comm.rank() == 0;
  std::vector<at::Tensor> parts;
  at::Tensor of_clusters;
  for (size_t i = 0; i < clusters_.size(); ++i) {
    const at::Tensor projected = at::mm(states, clusters_[i].projection);
    at::Tensor own = clusters_[i].scores.gathered(projected, comm);
    const at::Tensor others = i == 0 && others_ ? (*others_)(projected) : at::Tensor();
    if (!puts_out) continue;
    if (i > 0) {
      parts.push_back(at::log_softmax(own, 1) + of_clusters.narrow(1, static_cast<int64_t>(i) - 1, 1));
      continue;
    }
    const int64_t ids = own.size(1);
    if (others.defined()) own = at::cat({own, others}, 1);
    const at::Tensor first = at::log_softmax(own, 1);
    parts.push_back(first.narrow(1, 0, ids));
    of_clusters = first.narrow(1, ids, first.size(1) - ids);
  }
  return puts_out ? at::cat(parts, 1) : at::Tensor();
}

at::Tensor ClustersHead::score(const at::Tensor& states, comm::Communicator& comm) const {
  return in_pieces(states, vocabulary_, [&](const at::Tensor& some) { return scores(some, comm); });
}

}  // namespace pm::models
