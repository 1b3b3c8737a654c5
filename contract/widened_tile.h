// SPDX-License-Identifier: Apache-2.0
// The tiles by which GPUs widen quantised weights for products of many rows: the planner counts their memory, the
// worker allocates it.
#pragma once
#include <cstdint>

namespace pm {

/// A tile is whole rows of a matrix. It has at least this many bytes after widening, so that its product fills the
/// device, and not much more, so that it can stay in an L2 cache.
inline constexpr int64_t widened_tile_bytes = int64_t{32} << 20;

/// Every tile but the last has a multiple of these rows, which keeps its results aligned.
inline constexpr int64_t widened_tile_row_multiple = 64;

/// Returns the rows of a tile of a matrix of `rows` rows that take `row_bytes` bytes each after widening. The tile
/// takes less than 2 widened_tile_bytes + widened_tile_row_multiple rows.
constexpr int64_t widened_tile_rows(int64_t rows, int64_t row_bytes) {
  const int64_t tiles = rows * row_bytes / widened_tile_bytes;
  if (tiles <= 1) return rows;
  const int64_t even = (rows + tiles - 1) / tiles;
  const int64_t aligned =
      (even + widened_tile_row_multiple - 1) / widened_tile_row_multiple * widened_tile_row_multiple;
  return aligned < rows ? aligned : rows;
}

}  // namespace pm
