// SPDX-License-Identifier: Apache-2.0
// Heads that convolve their neighborhood with kernels made of it, beside heads that attend.
#pragma once
#include <cstdint>

#include "worker/policy/spec/param.h"

namespace pm::policy {

/// Span-based dynamic convolution (Jiang et al. 2020, "ConvBERT"). Each token and head has a kernel of `size` taps:
/// softmax(kernel(query * (pointwise(depthwise * x)))), by which the values of its neighbors are added up. There are as
/// many heads as in the attention, of the same size.
struct SpanConvolution {
  int64_t size = 9;  ///< taps, an odd number
  Param depthwise;   ///< [hidden, 1, taps]: a convolution of each channel alone
  Linear pointwise;  ///< [heads x head_dim, hidden]
  Linear kernel;     ///< [heads x taps, heads x head_dim]
  Linear values;     ///< [heads x head_dim, hidden]

  void collect(ParamCollector&) const;
};

}  // namespace pm::policy
