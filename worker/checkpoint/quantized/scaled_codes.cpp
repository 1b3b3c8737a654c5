// SPDX-License-Identifier: Apache-2.0
// Decodes tiles of a quantised matrix: codes to floats, times scales, rounded to the dense type.
#include "worker/checkpoint/quantized/scaled_codes.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "worker/base/error.h"
#include "worker/base/widest.h"

namespace pm::checkpoint {

namespace {

constexpr int64_t tile_codes = int64_t{1} << 20;  ///< that are read at a time
constexpr int64_t part_columns = 1024;            ///< of a tile, whose floats stay in the nearest cache
/// Rows of a tile that is transposed, neighbors in the dense matrix, and columns of its parts, whose dense elements
/// stay in a near cache.
constexpr int64_t transposed_rows = 256, transposed_columns = 512;

/// Reduces numbers by zero points, if any, and multiplies them by scales.
PM_WIDEST void apply_scales(float* values, int64_t count, const float* zeros, const float* scales) {
  if (zeros)
    for (int64_t i = 0; i < count; ++i) values[i] = (values[i] - zeros[i]) * scales[i];
  else
    for (int64_t i = 0; i < count; ++i) values[i] *= scales[i];
}

/// Writes the scale of each of `count` columns from `first`, `size` of which share one.
PM_WIDEST void spread(const float* scales, int64_t first, int64_t count, int64_t size, float* out) {
  for (int64_t i = 0, end = size - first % size; i < count; end += size, ++scales) {
    const int64_t stop = std::min(end, count);
    for (; i + 16 <= stop; i += 16) std::fill_n(out + i, 16, *scales);  // no shorter block is usual
    for (; i < stop; ++i) out[i] = *scales;
  }
}

PM_WIDEST void round_to(DType type, float* values, int64_t count) {
  if (type == DType::BF16)
    for (int64_t i = 0; i < count; ++i) values[i] = from_bf16(to_bf16(values[i]));
  else
    for (int64_t i = 0; i < count; ++i) values[i] = from_f16(to_f16(values[i]));
}

using Eight = uint16_t __attribute__((vector_size(16)));

/// Transposes 8 x 8 numbers of 16 bits. A turn interleaves each row of the upper half with one of the lower half, which
/// rotates the six bits of (row, column) by one place; three turns exchange row and column.
void transpose_eight(const uint16_t* from, int64_t from_pitch, uint16_t* to, int64_t to_pitch) {
  Eight rows[8], next[8];
  for (int i = 0; i < 8; ++i) std::memcpy(&rows[i], from + i * from_pitch, sizeof(Eight));
  for (int turn = 0; turn < 3; ++turn) {
    for (int i = 0; i < 4; ++i) {
      next[2 * i] = __builtin_shufflevector(rows[i], rows[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
      next[2 * i + 1] = __builtin_shufflevector(rows[i], rows[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
    std::copy_n(next, 8, rows);
  }
  for (int i = 0; i < 8; ++i) std::memcpy(to + i * to_pitch, &rows[i], sizeof(Eight));
}

/// Copies a matrix [rows, columns] of elements T, whose rows are `from_pitch` elements apart, to `out` [columns, rows]
/// whose rows are `pitch` elements apart.
template <typename T>
void transpose(const std::byte* from, int64_t from_pitch, int64_t rows, int64_t columns, std::byte* out,
               int64_t pitch) {
  constexpr int64_t block = 8, line = 64 / sizeof(T);
  const auto* source = reinterpret_cast<const T*>(from);
  auto* target = reinterpret_cast<T*>(out);
  for (int64_t c = 0; c < columns; c += block) {
    for (int64_t i = c + block; i < std::min(columns, c + 2 * block); ++i)
      for (int64_t r = 0; r < rows; r += line) __builtin_prefetch(target + i * pitch + r, 1, 2);
    for (int64_t r = 0; r < rows; r += block) {
      const int64_t width = std::min(block, columns - c), height = std::min(block, rows - r);
      if constexpr (sizeof(T) == 2) {
        if (width == block && height == block) {
          transpose_eight(source + r * from_pitch + c, from_pitch, target + c * pitch + r, pitch);
          continue;
        }
      }
      for (int64_t i = 0; i < width; ++i)
        for (int64_t k = 0; k < height; ++k) target[(c + i) * pitch + r + k] = source[(r + k) * from_pitch + c + i];
    }
  }
}

}  // namespace

/// The codes and scales of a region, and buffers, which are retained so that memory is allocated once.
struct ScaledCodes::Tile {
  Region region, blocks;                           ///< of codes, and of the scales that they need
  std::vector<int64_t> row_blocks, column_groups;  ///< of each row, and of each column where it has a group
  CodeMatrix::Words codes, zero_codes;
  std::vector<float> scales, zeros;  ///< of `blocks`
  Bytes scale_bytes;
  std::vector<std::byte> dense;  ///< of a part that is transposed
};

void ScaledCodes::check_shape(const ReadStored& read) const {
  if (!dense_shape) return;
  std::array<int64_t, 2> shape{};
  const Strip whole{0, 1, sizeof(shape), sizeof(shape)};
  read(*dense_shape, {&whole, 1}, std::as_writable_bytes(std::span(shape)));
  if (shape[0] == codes.rows && shape[1] == codes.columns) return;
  throw Error(Reason::ModelUnreadable, "tensor \"" + dense_shape->name + "\" says [" + std::to_string(shape[0]) + ", " +
                                           std::to_string(shape[1]) + "], but \"" + codes.stored.name +
                                           "\" and its scales are those of [" + std::to_string(codes.rows) + ", " +
                                           std::to_string(codes.columns) +
                                           "]; expected equal shapes: write the checkpoint again");
}

/// Reads the groups of `count` rows or columns.
std::vector<int64_t> ScaledCodes::groups_at(int64_t first, int64_t count, const ReadStored& read) const {
  const int64_t all = groups_of_rows ? scale.rows : scale.columns, element = size_of(groups->dtype);
  std::vector<std::byte> bytes(static_cast<size_t>(count * element));
  const Strip strip{first * element, 1, count * element, count * element};
  read(*groups, {&strip, 1}, bytes);
  std::vector<int64_t> found(static_cast<size_t>(count));
  for (size_t i = 0; i < found.size(); ++i) {
    if (groups->dtype == DType::I64) {
      std::memcpy(&found[i], bytes.data() + 8 * i, 8);
    } else {
      int32_t group = 0;
      std::memcpy(&group, bytes.data() + 4 * i, 4);
      found[i] = group;
    }
    if (found[i] < 0 || found[i] >= all)
      throw Error(Reason::ModelUnreadable, "tensor \"" + groups->name + "\" names the group " +
                                               std::to_string(found[i]) + " at " +
                                               std::to_string(first + static_cast<int64_t>(i)) + ", expected 0 to " +
                                               std::to_string(all - 1) + ": the groups that have scales");
  }
  return found;
}

void ScaledCodes::read_tile(int64_t matrix, const Region& region, const ReadStored& read, Tile& tile) const {
  const auto all_of = [](std::vector<int64_t>& blocks) {  // counts them from the first, returns it and their number
    const auto [first, last] = std::minmax_element(blocks.begin(), blocks.end());
    const int64_t from = *first, count = *last - from + 1;
    for (int64_t& block : blocks) block -= from;
    return std::pair(from, count);
  };
  tile.region = region;
  if (groups && groups_of_rows) {
    tile.row_blocks = groups_at(region.row, region.rows, read);
  } else {
    tile.row_blocks.resize(static_cast<size_t>(region.rows));
    for (int64_t i = 0; i < region.rows; ++i) tile.row_blocks[static_cast<size_t>(i)] = (region.row + i) / block_rows;
  }
  std::tie(tile.blocks.row, tile.blocks.rows) = all_of(tile.row_blocks);
  if (groups && !groups_of_rows) {
    tile.column_groups = groups_at(region.col, region.cols, read);
    std::tie(tile.blocks.col, tile.blocks.cols) = all_of(tile.column_groups);
  } else {
    tile.blocks.col = region.col / block_columns;
    tile.blocks.cols = (region.col + region.cols - 1) / block_columns - tile.blocks.col + 1;
  }
  scale.read(matrix, tile.blocks, read, tile.scale_bytes, tile.scales);
  if (global) {
    float factor = 0;
    const Strip whole{0, 1, sizeof(factor), sizeof(factor)};
    read(*global, {&whole, 1}, std::as_writable_bytes(std::span(&factor, 1)));
    for (float& one : tile.scales) one = divide_by_global ? one / factor : one * factor;
  }
  if (zero) {
    zero->read(matrix, tile.blocks, read, tile.zero_codes);
    tile.zeros.resize(tile.scales.size());
    for (int64_t row = 0; row < tile.blocks.rows; ++row)
      zero->to_numbers(tile.zero_codes, row, 0, tile.blocks.cols, tile.zeros.data() + row * tile.blocks.cols);
  }
  codes.read(matrix, region, read, tile.codes);
}

/// Decodes a part of a tile, at most `part_columns` wide, into `out`, whose rows are `pitch` bytes apart.
void ScaledCodes::decode_part(const Tile& tile, const Region& part, std::byte* out, int64_t pitch) const {
  std::array<float, part_columns> values, column_scales, column_zeros;
  const int64_t first = tile.region.col + part.col;
  const auto of_columns = [&](const std::vector<float>& all, int64_t block, std::array<float, part_columns>& to) {
    const float* from = all.data() + block * tile.blocks.cols;
    if (!tile.column_groups.empty())
      for (int64_t i = 0; i < part.cols; ++i)
        to[static_cast<size_t>(i)] = from[tile.column_groups[static_cast<size_t>(part.col + i)]];
    else if (block_columns == 1)
      return from + part.col;
    else
      spread(from + first / block_columns - tile.blocks.col, first, part.cols, block_columns, to.data());
    return static_cast<const float*>(to.data());
  };
  const float *scales = nullptr, *zeros = nullptr;
  for (int64_t row = part.row, last = -1; row < part.row + part.rows; ++row, out += pitch) {
    if (const int64_t block = tile.row_blocks[static_cast<size_t>(row)]; block != last) {
      scales = of_columns(tile.scales, block, column_scales);
      if (zero) zeros = of_columns(tile.zeros, block, column_zeros);
      last = block;
    }
    codes.to_numbers(tile.codes, row, part.col, part.cols, values.data());
    apply_scales(values.data(), part.cols, zeros, scales);
    if (rounded) round_to(*rounded, values.data(), part.cols);
    store_floats(values.data(), part.cols, dtype, out);
  }
}

/// Decodes a tile into `out`, whose rows are `pitch` bytes apart.
void ScaledCodes::decode_tile(Tile& tile, std::byte* out, int64_t pitch) const {
  const int64_t element = size_of(dtype), rows = tile.region.rows, columns = tile.region.cols;
  if (!transposed) {
    for (int64_t col = 0; col < columns; col += part_columns)
      decode_part(tile, {0, rows, col, std::min(part_columns, columns - col)}, out + col * element, pitch);
    return;
  }
  // no power of two, lest rows exclude each other from a cache
  const int64_t dense_pitch = std::min(columns, transposed_columns) + 32;
  tile.dense.resize(static_cast<size_t>(std::min(rows, transposed_rows) * dense_pitch * element));
  for (int64_t col = 0; col < columns; col += transposed_columns)
    for (int64_t row = 0; row < rows; row += transposed_rows) {
      const Region part{row, std::min(transposed_rows, rows - row), col, std::min(transposed_columns, columns - col)};
      decode_part(tile, part, tile.dense.data(), dense_pitch * element);
      (element == 2 ? transpose<uint16_t> : transpose<uint32_t>)(tile.dense.data(), dense_pitch, part.rows, part.cols,
                                                                 out + col * pitch + row * element, pitch / element);
    }
}

void ScaledCodes::decode(int64_t matrix, const Region& region, const ReadStored& read, std::byte* out) const {
  if (region.rows <= 0 || region.cols <= 0) return;
  check_shape(read);
  Tile tile;
  const int64_t element = size_of(dtype), pitch = region.cols * element;
  const Region all = transposed ? Region{region.col, region.cols, region.row, region.rows} : region;
  // rows of 32 share words that are packed along them
  const int64_t cols = std::min(all.cols, tile_codes / 32),
                rows = std::max<int64_t>(transposed ? transposed_rows : 32, tile_codes / cols / 32 * 32);
  for (int64_t row = 0, some = 0; row < all.rows; row += some) {
    some = std::min(all.rows - row, rows - (all.row + row) % 32);
    for (int64_t col = 0; col < all.cols; col += cols) {
      read_tile(matrix, {all.row + row, some, all.col + col, std::min(cols, all.cols - col)}, read, tile);
      decode_tile(tile, out + (transposed ? col * pitch + row * element : row * pitch + col * element), pitch);
    }
  }
}

}  // namespace pm::checkpoint
