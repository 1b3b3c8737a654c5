// Attention of single queries, the decoding step's kind, to keys and values in the paged cache.
#pragma once
#include "worker/ops/attention.h"

namespace pm::ops {

/// For each sequence (of one token each): its row of q [tokens, heads, d] against its keys -> the same row of `out`, contiguous. biases[i] is
/// [heads, keys] fp32 or undefined. Work is shared out over (sequence, heads, keys in pieces); the pieces depend on lengths only, so that the
/// result's bits do not depend on the number of threads.
void decode_attention(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache, std::span<const SequenceSpan* const> sequences,
                      std::span<const at::Tensor> biases, const AttentionOptions&, at::Tensor& out);

}  // namespace pm::ops
