// SPDX-License-Identifier: Apache-2.0
// Self-attention in chunks of tokens, in their own order or in that of hashes.
#pragma once
#include <optional>

#include "worker/comm/communicator.h"
#include "worker/layers/layers.h"
#include "worker/ops/chunk_attention.h"
#include "worker/policy/spec/attention.h"

namespace pm::layers {

class ChunkedAttention {
 public:
  /// Draws the rotations of this rank's heads, unless they depend on the length.
  ChunkedAttention(const policy::Attention&, const Loader&);
  /// Attends with q, k, v [tokens, local heads, head_dim] inside the batch. With hashes, k is not read: keys are normed
  /// queries. Tokens behind a prompt see what they saw in a step of their own, by a cache of states and buckets.
  /// Returns [tokens, local heads, head_dim] in the type of q.
  at::Tensor operator()(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Batch&,
                        comm::Communicator&) const;
  /// Returns whether queries are keys too.
  bool hashes() const { return chunks_.hashes.has_value(); }

 private:
  ops::HashRotations rotations(const std::vector<int64_t>& factors) const;
  ops::ChunkSequence sequence(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const;
  at::Tensor at_once(const ops::ChunkSequence&) const;
  at::Tensor one_by_one(const ops::ChunkSequence&, int64_t prompt, comm::Communicator&) const;
  at::Tensor compared_buckets(const at::Tensor& vectors, int64_t prompt, comm::Communicator&) const;
  policy::Chunks chunks_;
  double scale_;
  bool causal_;
  int64_t all_heads_, head_dim_;
  Range heads_;
  std::optional<ops::HashRotations> rotations_;
};

}  // namespace pm::layers
