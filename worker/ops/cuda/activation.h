// SPDX-License-Identifier: Apache-2.0
// Activations of the feed-forward block, gated or not.
#pragma once
#include "worker/ops/cuda/types.h"

namespace pm::ops::cuda {

enum class Activation : uint8_t { None, Gelu, GeluTanh, QuickGelu, Relu, Silu, Tanh };

/// Applies the activation in fp32, rounded once. Gated: x [rows, 2 width] -> act(first half) * second half [rows,
/// width]; else x [rows, width] -> act(x). y may be x when not gated.
struct Activate {
  Activation activation = Activation::None;
  bool gated = false;
  const void* x = nullptr;
  void* y = nullptr;
  Element type = Element::F32;
  int64_t rows = 0, width = 0;
};
void activate(const Activate&, Stream);

}  // namespace pm::ops::cuda
