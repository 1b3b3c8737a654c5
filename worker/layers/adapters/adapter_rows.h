// SPDX-License-Identifier: Apache-2.0
// Which adapter each row of a step has.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace pm::layers {

/// Slots count from 1; 0 is the base model.
struct AdapterRows {
  /// Rows of one slot: `index` [count] int64, or `count` rows from `first` on where it is undefined.
  struct Group {
    int32_t slot = 0;
    int64_t first = 0, count = 0;
    at::Tensor index;
  };
  bool uniform = true;             ///< every row, whatever their number, has the first of `used`
  int64_t count = 0;               ///< rows, where they are not uniform
  std::vector<int32_t> used = {};  ///< slots of some row, without 0
  std::vector<Group> groups = {};  ///< one for each of them, where rows are not uniform
  at::Tensor others;               ///< bool [rows, slots]: the row has not this slot

  /// Throws std::logic_error unless a product of so many rows is one of these.
  void check(int64_t rows) const;
};

}  // namespace pm::layers
