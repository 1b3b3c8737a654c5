// SPDX-License-Identifier: Apache-2.0
// Log-probabilities over a vocabulary in clusters: the adaptive softmax.
#pragma once
#include "worker/models/heads/scoring.h"

namespace pm::models {

class ClustersHead final : public VocabularyHead {
 public:
  ClustersHead(const policy::Model&, const policy::Head&, const policy::ClustersSpec&, layers::Loader&);
  /// The scores are log-probabilities.
  at::Tensor scores(const at::Tensor& states, comm::Communicator&) const override;

 protected:
  at::Tensor score(const at::Tensor& states, comm::Communicator&) const override;

 private:
  struct Cluster {
    at::Tensor projection;  ///< [hidden, width] F32
    layers::LogitsHead scores;
  };
  std::vector<Cluster> clusters_;
  std::optional<layers::Linear> others_;
  int64_t vocabulary_;
};

}  // namespace pm::models
