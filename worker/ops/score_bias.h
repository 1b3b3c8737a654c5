// SPDX-License-Identifier: Apache-2.0
// Position biases that are added to attention scores before the softmax.
#pragma once
#include "worker/ops/attention.h"

namespace pm::ops {

/// Returns the bias of the scores of queries context .. context + queries - 1 and keys 0 .. keys - 1, scale included
/// where it applies: fp32, [heads, queries or 1, keys] on `device`; undefined when there is none. Masks are not part of
/// it.
at::Tensor score_bias(const AttentionOptions&, int64_t context, int64_t queries, int64_t keys, at::Device device);

}  // namespace pm::ops
