// SPDX-License-Identifier: Apache-2.0
// A gated convolution over the last few tokens.
#pragma once
#include <cstdint>

#include "worker/policy/spec/param.h"
#include "worker/policy/spec/recurrent/state_shape.h"

namespace pm::policy {

/// A short convolution with gates before and behind it (LFM2). Of each token there are b, c and x, of as many channels
/// as the layer's states:
///   result = c * convolution(b * x)
/// The convolution is causal and has each channel alone. The result is projected. Some channels that lie beside each
/// other are a unit of sharding.
struct ShortConvolution {
  int64_t units = 0, width = 0;  ///< width: channels of a unit
  int64_t taps = 3;
  Linear before, behind, input;  ///< b, c and x [channels, hidden]
  Linear convolution;            ///< [channels, 1, taps], perhaps with a bias
  Linear out;                    ///< [hidden, channels]

  StateShape state() const { return {.units = units, .inputs = taps - 1, .channels = width, .projected = 3 * width}; }
  const Param& sharded() const { return input.weight; }  ///< its units are those of the block
  void collect(ParamCollector&) const;
};

}  // namespace pm::policy
