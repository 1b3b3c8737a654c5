// SPDX-License-Identifier: Apache-2.0
// A vocabulary in clusters of ids, the most frequent first: adaptive input representations (Baevski & Auli 2019) and
// the adaptive softmax (Grave et al. 2017). Rarer tokens have narrower embeddings.
#pragma once
#include <optional>
#include <vector>

#include "worker/policy/spec/param.h"

namespace pm::policy {

/// The embeddings of the ids of one cluster.
struct TokenCluster {
  std::optional<Param> table;  ///< [ids, width]; absent in the first cluster, whose table is Input::token
  Param projection;            ///< [hidden, width]
};

/// The scores of the ids of one cluster: scores . projection^T . state + bias.
struct ScoreCluster {
  Param projection;  ///< [hidden, width]
  Linear scores;     ///< [ids, width]
};

/// Log-probabilities of a vocabulary. Those of the first cluster's ids are by one softmax, in which each of the other
/// clusters has a score too; within a cluster there is another softmax.
struct ClustersSpec {
  std::vector<ScoreCluster> clusters;
  std::optional<Linear> others;  ///< [clusters - 1, width of the first]; absent: there is one cluster

  void collect(ParamCollector&) const;
};

}  // namespace pm::policy
