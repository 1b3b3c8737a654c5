// SPDX-License-Identifier: Apache-2.0
// A selective state space: heads that forget at a rate of their own and keep a matrix instead of keys and values.
#pragma once
#include <cstdint>
#include <limits>

#include "worker/policy/spec/param.h"
#include "worker/policy/spec/recurrent/state_shape.h"

namespace pm::policy {

/// A block of Mamba-2 (Dao and Gu 2024, "Transformers are SSMs"). The values x of a token's heads, and what it writes
/// with, b, and reads with, c, of each group of heads, go through a causal convolution of each channel alone and SiLU.
/// Each head has a state S [state_size, head_dim], and for each token:
///   S = exp(-exp(decay) t) S + b (t x)^T,  result = c^T S + skip x
///   t = softplus(step + step_bias), at least least_step and at most most_step
/// The result is multiplied by SiLU(z), normed in each group and projected. A group is a unit of sharding; of one group
/// a head is: then every rank has b and c, and ranks add the squares of the norm.
struct StateSpace {
  int64_t heads = 0, head_dim = 0;  ///< head j is of group j / (heads / groups)
  int64_t groups = 1, state_size = 0;
  int64_t taps = 4;  ///< of the convolution
  double least_step = 0, most_step = std::numeric_limits<double>::infinity();
  Linear output_gate, value;                 ///< z and x [heads x head_dim, hidden]
  Linear write, read;                        ///< b and c [groups x state_size, hidden]
  Linear step;                               ///< [heads, hidden]
  Linear value_taps, write_taps, read_taps;  ///< [channels, 1, taps], perhaps with biases
  Param decay, step_bias, skip;              ///< [heads]
  Norm norm;                                 ///< weight [heads x head_dim], which is sharded as the heads are
  Linear out;                                ///< [hidden, heads x head_dim]

  bool is_shared() const { return groups == 1; }  ///< whether b and c are on every rank
  int64_t units() const { return is_shared() ? heads : groups; }
  StateShape state() const {
    const int64_t own = heads / units(), values = own * head_dim, written = 2 * state_size;
    return {.units = units(),
            .inputs = taps - 1,
            .channels = values + (is_shared() ? 0 : written),
            .shared_channels = is_shared() ? written : 0,
            .matrices = own,
            .rows = state_size,
            .columns = head_dim,
            .projected = 2 * values + own + (is_shared() ? 0 : written)};
  }
  const Param& sharded() const { return value.weight; }  ///< its units are those of the block
  void collect(ParamCollector&) const;
};

}  // namespace pm::policy
