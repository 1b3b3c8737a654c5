// SPDX-License-Identifier: Apache-2.0
// Self-attention in which a query sees some of the keys only, with the projections of its own that global tokens have.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "worker/layers/layers.h"
#include "worker/ops/sparse_attention.h"
#include "worker/policy/spec/attention.h"

namespace pm::layers {

class SparseSelfAttention {
 public:
  /// Exchanges projected keys and values where ranks share heads; see SharedHeads::exchanged.
  using Exchange = std::function<at::Tensor(const at::Tensor& columns)>;

  /// Loads the projections of global tokens, if the pattern has any.
  SparseSelfAttention(const policy::Attention&, Loader&);
  /// Attends with q, k, v [tokens, local heads, head_dim], which were projected from x [tokens, hidden]. Returns
  /// [tokens, local heads, head_dim]. With `probabilities`, appends those of each sequence for the local heads.
  at::Tensor operator()(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& x,
                        const Batch&, const Exchange&, std::vector<ops::SparseProbabilities>* probabilities) const;

 private:
  struct Global {
    ColumnLinear keys_and_values, query;
  };
  ops::GlobalRows global_rows(const at::Tensor& x, const Batch&, int64_t heads, int64_t head_dim,
                              const Exchange&) const;
  ops::SparseOptions options_;
  std::optional<Global> global_;
};

}  // namespace pm::layers
