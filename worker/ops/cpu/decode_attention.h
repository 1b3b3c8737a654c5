// SPDX-License-Identifier: Apache-2.0
// CPU attention for decode: single queries attend to keys and values in the paged cache.
#pragma once
#include "worker/ops/attention.h"

namespace pm::ops {

/// For each sequence, which has one token, attends with its row of q [tokens, heads, d] to its keys and writes the same
/// row of `out`, contiguous. biases[i] is [heads, keys] fp32 or undefined. Work is split over sequences, heads and
/// splits of the keys (Flash-Decoding). The splits depend on lengths only, so that the result's bits do not depend on
/// the number of threads.
void decode_attention(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache,
                      std::span<const SequenceSpan* const> sequences, std::span<const at::Tensor> biases,
                      const AttentionOptions&, at::Tensor& out);

}  // namespace pm::ops
