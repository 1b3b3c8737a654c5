// SPDX-License-Identifier: Apache-2.0
// RMS norms of all queries and of all keys of a token, of which each rank has those of its own heads.
#pragma once
#include "worker/layers/layers.h"
#include "worker/policy/spec/attention.h"

namespace pm::layers {

class ProjectionNorms {
 public:
  ProjectionNorms(const policy::Attention&, Loader&);
  /// Norms the projections of a rank [tokens, its rows of queries, keys and values side by side], in their type: x /
  /// sqrt(mean(x^2) + eps) * weight, in F32, with the mean over the rows of all ranks. One all-reduce adds two numbers
  /// a token.
  at::Tensor operator()(const at::Tensor& projected, comm::Communicator&) const;

 private:
  struct Part {
    Weight weight;      ///< [own rows]
    int64_t width = 0;  ///< rows of all ranks
    double eps = 0;
  };
  Part query_, key_;
};

}  // namespace pm::layers
