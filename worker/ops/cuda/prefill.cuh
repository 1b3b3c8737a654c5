// SPDX-License-Identifier: Apache-2.0
// Code that the two prefill kernels share: the query tile of a thread block, and the offsets of keys.
#pragma once
#include "worker/ops/cuda/scores.cuh"

namespace pm::ops::cuda {

/// Queries begin .. end - 1 of a sequence, and the range and offsets of their keys.
struct Tile {
  int64_t sequence, begin, end, first_row, context, keys, head, kv;
  int64_t from, to;  ///< no query of the tile attends to keys outside of this range

  __device__ __forceinline__ Tile(const PrefillAttention& p, int64_t tile, int64_t queries, int64_t keys_at_once) {
    sequence = blockIdx.z;
    head = blockIdx.y;
    kv = head / (p.heads / p.kv_heads);
    begin = tile * queries;
    end = begin + queries < p.tokens[sequence] ? begin + queries : p.tokens[sequence];
    first_row = p.first[sequence];
    context = p.contexts[sequence];
    keys = p.keys[sequence];
    const int64_t last = context + end - 1;  // positions of the tile's queries: context + begin .. last
    const int64_t seen = p.scores.causal ? last + 1 : p.scores.window > 0 ? last + p.scores.window : keys;
    to = seen < keys ? seen : keys;
    from = p.scores.window > 0 && context + begin + 1 > p.scores.window ? context + begin + 1 - p.scores.window : 0;
    from = from / keys_at_once * keys_at_once;
  }
  __device__ __forceinline__ int64_t key_offset(const PrefillAttention& p, int64_t key) const {
    if (!p.paged) return (p.key_rows[sequence] + key) * p.k_stride + kv * p.d;
    return p.tables[sequence * p.table_stride + key / block_tokens] * p.k_stride +
           (kv * block_tokens + key % block_tokens) * p.d;
  }
  __device__ __forceinline__ int64_t query_offset(const PrefillAttention& p, int64_t query) const {
    return (first_row + query) * p.q_stride + head * p.d;
  }
  __device__ __forceinline__ int64_t out_offset(const PrefillAttention& p, int64_t query) const {
    return ((first_row + query) * p.heads + head) * p.d;
  }
};

/// Launches the tensor core kernel of prefill_mma.cu.
void prefill_on_tensor_cores(const PrefillAttention&, Stream);

}  // namespace pm::ops::cuda
