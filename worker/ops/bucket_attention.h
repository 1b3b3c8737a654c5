// SPDX-License-Identifier: Apache-2.0
// Attention whose queries say themselves how much distances count, and streams of queries that predict following tokens
// (Qi et al., "ProphetNet", 2020). It is made of ATen's products, for any device.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "worker/ops/attention.h"
#include "worker/ops/sparse_attention.h"

namespace pm::ops {

/// Returns the bucket of keys that stand `before` a query by this many columns, int64 -> int64: exact for near keys,
/// logarithmic up to `max_distance`, the last one beyond it. Bucket 0 is also that of keys behind the query.
at::Tensor buckets_before(const at::Tensor& before, int64_t buckets, int64_t max_distance);

/// What the queries of one sequence read of its keys, for all layers and heads.
struct SequenceBuckets {
  at::Tensor own;                  ///< int64 [queries, keys]: the bucket of each key
  at::Tensor next;                 ///< likewise, of queries at the next token: those of streams
  std::vector<at::Tensor> hidden;  ///< bool [queries, keys] of the main stream and of each other: what is not seen
};

struct BucketShape {
  int64_t buckets = 32, max_distance = 128;
};

/// Makes the buckets of each sequence. Queries of the main stream see the keys up to their own; those of stream i (from
/// 0) see the keys that stand at least i before them, and the first column of a row. `columns` has an entry for each
/// sequence; empty: no sequence is padded, as none is that has a cache.
std::vector<SequenceBuckets> sequence_buckets(std::span<const SequenceSpan>, std::span<const SequenceColumns> columns,
                                              int64_t streams, const BucketShape&, at::Device);

/// The rows of the main stream come first, then those of each other stream, in the same order.
struct BucketAttention {
  double scale = 1;
  int64_t streams = 0;  ///< beside the main one
  at::Tensor q, k, v;   ///< [(1 + streams) x tokens, heads, d]
  at::Tensor biases;    ///< [(1 + streams) x tokens, heads, buckets] fp32: what each query adds to scaled scores
  const at::Tensor *k_cache = nullptr,
                   *v_cache = nullptr;  ///< hold the keys of the main stream; nullptr: keys are rows of `k`
  std::span<const SequenceBuckets> buckets;
};

/// What was attended to, for each sequence.
struct BucketProbabilities {
  std::vector<at::Tensor> own;      ///< [heads, queries, keys] fp32
  std::vector<at::Tensor> streams;  ///< [heads, streams, queries, keys + 1] fp32: the last key is the query's own
};

/// Returns [(1 + streams) x tokens, heads, d] in the type of q. Queries of the main stream attend to the keys of their
/// sequence. Those of other streams attend to the same keys and to their own, which has bucket 0 and which no other
/// query sees. Rows of padding before the keys of a sequence without a cache attend as transformers lets them: to that
/// padding up to their own, and to all keys, with equal weights.
at::Tensor bucket_attention(const BucketAttention&, std::span<const SequenceSpan>,
                            BucketProbabilities* probabilities = nullptr);

/// Returns the keys or values of one sequence in a cache [blocks, heads, 16, d] as fp32 [heads, keys, d].
at::Tensor gathered_blocks(const at::Tensor& cache, const SequenceSpan&);

}  // namespace pm::ops
