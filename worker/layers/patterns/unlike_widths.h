// SPDX-License-Identifier: Apache-2.0
// Attention whose values have another width than its keys.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "worker/ops/attention.h"

namespace pm::layers {

/// Attends as ops::ragged_attention does, with values [key rows, kv_heads, width] of any width, and with any number of
/// heads, none too. Returns [tokens, heads, width].
at::Tensor attend_unlike(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const ops::StepSequences&,
                         const ops::AttentionOptions&, std::vector<at::Tensor>* probabilities);

}  // namespace pm::layers
