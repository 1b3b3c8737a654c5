// SPDX-License-Identifier: Apache-2.0
// What queries say for each bucket of distances.
#pragma once
#include "worker/layers/layers.h"
#include "worker/policy/spec/attention.h"

namespace pm::layers {

/// Projects states to one bias for each head and bucket of distances.
class ContentBuckets {
 public:
  ContentBuckets(const policy::ContentBuckets&, Loader&);
  /// Returns the biases of this rank's heads: x [rows, hidden] -> [rows, heads, buckets] F32.
  at::Tensor operator()(const at::Tensor& x, int64_t heads) const;
  /// Returns whether streams of a batch without a cache take the biases of others.
  bool is_swapped() const { return swapped_; }
  /// Returns the biases that queries of streams get in place of their own, as policy::ContentBuckets describes it. They
  /// may be those of other ranks' heads, of which each rank has `heads_of_rank`.
  static at::Tensor swapped(const at::Tensor& biases, const Batch&, const std::vector<int64_t>& heads_of_rank,
                            comm::Communicator&);

 private:
  int64_t buckets_;
  bool swapped_;
  ColumnLinear linear_;
};

}  // namespace pm::layers
