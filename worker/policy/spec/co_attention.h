// SPDX-License-Identifier: Apache-2.0
// A layer of two streams of rows that attend to each other.
#pragma once
#include "worker/policy/spec/attention.h"
#include "worker/policy/spec/mlp.h"

namespace pm::policy {

/// What a layer of two streams has beside the attention and the MLP of the first (Tan and Bansal 2019, "LXMERT"). First
/// the rows of each stream attend to those of the other, by one block for both directions. Then each stream has a
/// self-attention and an MLP of its own.
struct CoAttention {
  Attention across;
  Attention attention;  ///< of the second stream
  Mlp mlp;              ///< of the second stream

  void collect(ParamCollector&) const;
};

}  // namespace pm::policy
