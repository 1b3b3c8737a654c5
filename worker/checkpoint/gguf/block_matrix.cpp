// SPDX-License-Identifier: Apache-2.0
#include "worker/checkpoint/gguf/block_matrix.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "worker/checkpoint/quantized/float_codes.h"

namespace pm::checkpoint {

namespace {

constexpr int64_t tile_bytes = int64_t{1} << 20;  ///< of blocks that are read at a time

/// Returns the stored row of a row of the module.
int64_t stored_row(int64_t row, int64_t head_rows) {
  if (head_rows == 0) return row;
  const int64_t half = head_rows / 2, within = row % head_rows;
  return row - within + within % half * 2 + within / half;
}

void decode_plain(const uint8_t* bytes, int64_t count, DType type, float* out) {
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits = 0;
    if (type == DType::F32)
      std::memcpy(out + i, bytes + 4 * i, 4);
    else if (std::memcpy(&bits, bytes + 2 * i, 2); type == DType::BF16)
      out[i] = from_bf16(bits);
    else
      out[i] = from_f16(bits);
  }
}

}  // namespace

void BlockMatrix::decode_in_order(const Region& region, const ReadStored& read, std::byte* out) const {
  const int64_t size = type->elements, first = region.col / size,
                blocks = (region.col + region.cols - 1) / size - first + 1;
  const int64_t row_bytes = columns / size * type->bytes, part_bytes = blocks * type->bytes;
  const int64_t most = std::max<int64_t>(1, tile_bytes / part_bytes), element = size_of(dtype);
  std::vector<uint8_t> bytes;
  std::vector<float> values(static_cast<size_t>(blocks * size));
  for (int64_t row = region.row, end = region.row + region.rows; row < end;) {
    const int64_t stop = std::min(end, row + most);
    // pairs lie within their head, of which the stored rows from the first to the last that is needed are read
    int64_t low = stored_row(row, head_rows), high = low;
    for (int64_t at = row; at < stop; ++at) {
      low = std::min(low, stored_row(at, head_rows));
      high = std::max(high, stored_row(at, head_rows));
    }
    bytes.resize(static_cast<size_t>((high - low + 1) * part_bytes));
    const Strip strip{low * row_bytes + first * type->bytes, high - low + 1, part_bytes, row_bytes};
    read(stored, {&strip, 1}, std::as_writable_bytes(std::span(bytes)));
    for (; row < stop; ++row, out += region.cols * element) {
      const uint8_t* from = bytes.data() + (stored_row(row, head_rows) - low) * part_bytes;
      if (type->plain)
        decode_plain(from, blocks, *type->plain, values.data());
      else
        type->decode(from, blocks, values.data());
      float* wanted = values.data() + region.col - first * size;
      if (addend != 0)
        for (int64_t i = 0; i < region.cols; ++i) wanted[i] += addend;
      store_floats(wanted, region.cols, dtype, out);
    }
  }
}

void BlockMatrix::decode(int64_t, const Region& region, const ReadStored& read, std::byte* out) const {
  if (region.rows <= 0 || region.cols <= 0) return;
  if (!transposed) return decode_in_order(region, read, out);
  const int64_t element = size_of(dtype), most = std::max<int64_t>(1, tile_bytes / (region.rows * element));
  std::vector<std::byte> tile;
  for (int64_t first = 0; first < region.cols; first += most) {
    const int64_t some = std::min(most, region.cols - first);
    tile.resize(static_cast<size_t>(some * region.rows * element));
    decode_in_order({region.col + first, some, region.row, region.rows}, read, tile.data());
    for (int64_t row = 0; row < region.rows; ++row)
      for (int64_t col = 0; col < some; ++col)
        std::memcpy(out + (row * region.cols + first + col) * element,
                    tile.data() + (col * region.rows + row) * element, static_cast<size_t>(element));
  }
}

}  // namespace pm::checkpoint
