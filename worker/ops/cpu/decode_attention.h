// SPDX-License-Identifier: Apache-2.0
// CPU attention for decode: single queries attend to keys and values in the paged cache.
#pragma once
#include "worker/ops/attention.h"

namespace pm::ops {

/// A row of q, with its position and the keys that it sees.
struct SingleQuery {
  int64_t row = 0, position = 0, keys = 0;
  std::span<const int32_t> blocks;  ///< as SequenceSpan::blocks
  at::Tensor bias;                  ///< [heads, keys] fp32; undefined: none
};

/// For each query attends with its row of q [tokens, heads, d] to its keys and writes the same row of `out`,
/// contiguous. Queries of one sequence are neighbours. Work is split over sequences, heads and splits of the keys
/// (Flash-Decoding). The splits depend on lengths only, so that the result's bits do not depend on the number of
/// threads.
void decode_attention(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache,
                      std::span<const SingleQuery>, const AttentionOptions&, at::Tensor& out);

}  // namespace pm::ops
