// SPDX-License-Identifier: Apache-2.0
// What sequences keep in the layers that have no keys and values.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "worker/layers/loader.h"
#include "worker/policy/spec/stack.h"

namespace pm::layers {

/// The states of one layer, F32. A sequence has the row of its slot.
struct LayerState {
  at::Tensor inputs;    ///< [slots, taps - 1, channels]: the last inputs of the convolution, the oldest first
  at::Tensor matrices;  ///< [slots, matrices, rows, columns]; undefined: there are none
};

/// The states of a stack's layers on this rank.
class RecurrentStates {
 public:
  /// Makes states of `slots` sequences for the layers [begin, end) of the stack, on the loader's device. Layers are
  /// numbered from 0 here; those that attend have undefined tensors.
  RecurrentStates(const policy::Stack&, Range layers, const Loader&, int64_t slots);
  LayerState& layer(size_t number) { return layers_[number]; }
  /// Grows the capacity to slots 0 .. `slots` - 1.
  void reserve(int64_t slots);
  /// Copies the states of all layers; `pairs` are (from, to) slots, of which no one is both.
  void copy(std::span<const int32_t> pairs);
  int64_t bytes() const;

 private:
  std::vector<LayerState> layers_;
  int64_t slots_ = 0;
};

}  // namespace pm::layers
