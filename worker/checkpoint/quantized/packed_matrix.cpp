// SPDX-License-Identifier: Apache-2.0
// Reads strips of a packed tensor: they are split into rectangles of its matrices, which its class decodes.
#include "worker/checkpoint/quantized/packed_matrix.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "worker/checkpoint/strips.h"

namespace pm::checkpoint {

namespace {

/// Decodes elements [first, first + count) of the dense tensor, whose rows may begin and end within them.
void decode_run(const PackedMatrix& packed, int64_t first, int64_t count, const ReadStored& read, std::byte* out) {
  const int64_t columns = packed.dense_columns(), rows = packed.dense_rows(), element = size_of(packed.dtype);
  while (count > 0) {
    const int64_t row = first / columns, column = first % columns, here = row % rows;
    const bool whole = column == 0 && count >= columns;
    const Region region = whole ? Region{here, std::min(count / columns, rows - here), 0, columns}
                                : Region{here, 1, column, std::min(count, columns - column)};
    packed.decode(row / rows, region, read, out);
    const int64_t done = region.rows * region.cols;
    first += done, count -= done, out += done * element;
  }
}

}  // namespace

void read_packed(const TensorInfo& dense, std::span<const Strip> strips, std::span<std::byte> out,
                 const ReadStored& read) {
  check_strips(dense, strips, out);
  const PackedMatrix& packed = *dense.packed;
  const int64_t element = size_of(packed.dtype), columns = packed.dense_columns(), rows = packed.dense_rows();
  std::byte* to = out.data();
  for (const Strip& strip : strips) {
    if (strip.offset % element || strip.row_bytes % element || (strip.rows > 1 && strip.stride % element))
      throw std::invalid_argument("a strip of tensor \"" + dense.name +
                                  "\" does not begin and end at whole elements of " + std::to_string(element) +
                                  " bytes");
    const int64_t first = strip.offset / element, count = strip.row_bytes / element, step = strip.stride / element;
    if (count == 0 || strip.rows == 0) continue;
    const int64_t row = first / columns, column = first % columns;
    if (strip.rows <= 1 || step == count) {
      decode_run(packed, first, count * strip.rows, read, to);
    } else if (step == columns && column + count <= columns) {
      for (int64_t at = row, left = strip.rows; left > 0;) {
        const int64_t some = std::min(left, rows - at % rows);
        packed.decode(at / rows, {at % rows, some, column, count}, read, to + (strip.rows - left) * strip.row_bytes);
        at += some, left -= some;
      }
    } else {
      for (int64_t i = 0; i < strip.rows; ++i)
        decode_run(packed, first + i * step, count, read, to + i * strip.row_bytes);
    }
    to += strip.rows * strip.row_bytes;
  }
}

}  // namespace pm::checkpoint
