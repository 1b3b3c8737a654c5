// SPDX-License-Identifier: Apache-2.0
// Gated delta net: linear attention whose heads keep a matrix instead of keys and values.
#pragma once
#include <cstdint>

#include "worker/policy/spec/param.h"
#include "worker/policy/spec/recurrent/state_shape.h"

namespace pm::policy {

/// A block of gated delta net (Yang et al. 2025, "Gated Delta Networks"). Queries, keys and values of a token go
/// through a causal convolution of each channel alone and SiLU. Each value head has a state S [key_dim, value_dim], and
/// for each token, with the query q and the key k of its key head at length 1 and q then divided by sqrt(key_dim):
///   S = exp(g) S,  S = S + k (beta (v - k^T S))^T,  result = q^T S
///   beta = sigmoid(b),  g = -exp(decay) softplus(a + step_bias)
/// The result is normed, multiplied by SiLU(z) and projected. A key head and its value heads are a unit of sharding.
struct DeltaNet {
  int64_t key_heads = 0, value_heads = 0;  ///< value_heads is a multiple; value head j has key head j / (their ratio)
  int64_t key_dim = 0, value_dim = 0;      ///< of a head
  int64_t taps = 4;                        ///< of the convolution
  Linear query, key, value;                ///< [heads x width, hidden]
  Linear output_gate;                      ///< z [value_heads x value_dim, hidden]
  Linear beta, step;                       ///< b and a [value_heads, hidden]
  Param query_taps, key_taps, value_taps;  ///< [channels, 1, taps]
  Param decay, step_bias;                  ///< [value_heads]
  Norm norm;                               ///< of each head's result [value_dim]
  Linear out;                              ///< [hidden, value_heads x value_dim]

  int64_t values_per_key() const { return value_heads / key_heads; }
  /// Returns the channels that go through the convolution, of one key head.
  int64_t channels() const { return 2 * key_dim + values_per_key() * value_dim; }
  StateShape state() const {
    return {.units = key_heads,
            .inputs = taps - 1,
            .channels = channels(),
            .matrices = values_per_key(),
            .rows = key_dim,
            .columns = value_dim,
            .projected = channels() + values_per_key() * value_dim};
  }
  const Param& sharded() const { return key.weight; }  ///< its units are those of the block
  void collect(ParamCollector&) const;
};

}  // namespace pm::policy
