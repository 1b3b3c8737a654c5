// SPDX-License-Identifier: Apache-2.0
// CPU attention of sequences with several queries, without a matrix of scores.
#pragma once
#include <ATen/core/Tensor.h>

#include "worker/ops/attention.h"

namespace pm::ops {

/// Returns whether prefill_attention() has all that these options ask for.
bool has_prefill_attention(const AttentionOptions&);

/// Computes rows first .. first + tokens - 1 of `out` [tokens, heads, d] for the queries of one sequence. `k` and `v`
/// of the types F32, F16 or BF16 are the caches [blocks, kv_heads, 16, d] or [key rows, kv_heads, d], or they are
/// caches of codes (../kv_codes.h); q is fp32.
void prefill_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceSpan&,
                       const AttentionOptions&, at::Tensor& out);

}  // namespace pm::ops
