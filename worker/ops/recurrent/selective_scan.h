// SPDX-License-Identifier: Apache-2.0
// The selective scan of Mamba-2 (Dao and Gu 2024): heads that forget, and add what a token writes.
#pragma once
#include <ATen/core/Tensor.h>

namespace pm::ops {

/// Tokens of one sequence, or one token of each of several sequences, all F32 and of one device. Head j is of group
/// j / (heads / groups).
struct SelectiveScan {
  at::Tensor reads, writes;  ///< [tokens, groups, state_size]: c and b
  at::Tensor values;         ///< [tokens, heads, head_dim], times the steps
  at::Tensor decays;         ///< [tokens, heads]: logarithms of what the state is multiplied by, at most 0
};

/// Runs tokens one after another from `state` [heads, state_size, head_dim], which becomes that behind the last of
/// them:
///   S = exp(decay) S + b value^T,  result = c^T S
/// Returns [tokens, heads, head_dim]. Many tokens are computed by chunks: the same numbers up to the order of sums.
at::Tensor selective_scan(const SelectiveScan&, at::Tensor& state);
/// Runs one token of each sequence. `states` [tokens, heads, state_size, head_dim] become those behind it.
at::Tensor selective_scan_step(const SelectiveScan&, at::Tensor& states);

}  // namespace pm::ops
