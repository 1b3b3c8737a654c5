// SPDX-License-Identifier: Apache-2.0
// Multi-head latent attention: keys and values of all heads are made of one short vector, which is what a cache holds.
#pragma once
#include <cstdint>
#include <optional>

#include "worker/policy/spec/param.h"

namespace pm::policy {

/// Multi-head latent attention, MLA (DeepSeek-AI, "DeepSeek-V2", 2024). Of a token x with the heads h:
///   c = norm(down x), first `rank` rows      r = rotate(down x), the other `rotary_dims` rows, one for all heads
///   key of h   = [key_h c, r]                value of h = value_h c
///   query of h = query_h x, or query_h query_norm(query_down x); its last `rotary_dims` numbers are rotated
/// A cache has [c, r] of each token. Attention::key and value are the rows key_h and value_h, cut by heads; they need
/// not be multiplied by cached tokens, because query . key_h c = (query key_h) . c and sum(p value_h c) = value_h
/// sum(p c).
struct LatentAttention {
  int64_t rank = 0, rotary_dims = 0;
  std::optional<Linear> query_down;  ///< [rank of queries, hidden]
  std::optional<Norm> query_norm;    ///< of what it makes
  Linear down;                       ///< [rank + rotary_dims, hidden]
  Norm norm;                         ///< of the first `rank` rows

  /// Returns the numbers that a layer caches of a token.
  int64_t width() const { return rank + rotary_dims; }
  void collect(ParamCollector&) const;
};

}  // namespace pm::policy
