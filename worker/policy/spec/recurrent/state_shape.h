// SPDX-License-Identifier: Apache-2.0
// What a sequence keeps in a layer that has no keys and values.
#pragma once
#include <cstdint>

namespace pm::policy {

/// The F32 numbers of a sequence in one recurrent layer, and the columns of the layer's projections, by units of
/// sharding: a rank has whole units.
struct StateShape {
  int64_t units = 0;
  int64_t inputs = 0;                           ///< of the convolution that are kept: one less than its taps
  int64_t channels = 0;                         ///< of the convolution, for one unit
  int64_t shared_channels = 0;                  ///< likewise, which all units read: every rank has them
  int64_t matrices = 0, rows = 0, columns = 0;  ///< [matrices, rows, columns] for one unit; 0: there are none
  int64_t projected = 0;                        ///< columns of the projections, for one unit

  int64_t elements() const { return matrices * rows * columns + channels * inputs; }
  int64_t shared_elements() const { return shared_channels * inputs; }
  bool operator==(const StateShape&) const = default;
};

}  // namespace pm::policy
