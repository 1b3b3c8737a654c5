// SPDX-License-Identifier: Apache-2.0
// Decodes tiles of a quantised matrix: codes to floats, times scales, rounded to the dense type.
#include "worker/checkpoint/quantized/packed_matrix.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "worker/base/error.h"
#include "worker/checkpoint/strips.h"

namespace pm::checkpoint {

namespace {

constexpr int64_t tile_codes = int64_t{1} << 20;  ///< the most that are decoded at a time
constexpr int64_t min_run = 8;                    ///< columns of a block that are worth a table
constexpr int64_t row_part = 1024;                ///< columns whose floats stay in the nearest cache

/// Writes floats as the dense type.
void store(const float* from, int64_t count, DType type, std::byte* out) {
  if (type == DType::F32) {
    std::memcpy(out, from, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  auto* to = reinterpret_cast<uint16_t*>(out);
  if (type == DType::BF16)
    for (int64_t i = 0; i < count; ++i) to[i] = to_bf16(from[i]);
  else
    for (int64_t i = 0; i < count; ++i) to[i] = to_f16(from[i]);
}

void round_to(DType type, float* values, int64_t count) {
  if (type == DType::BF16)
    for (int64_t i = 0; i < count; ++i) values[i] = from_bf16(to_bf16(values[i]));
  else
    for (int64_t i = 0; i < count; ++i) values[i] = from_f16(to_f16(values[i]));
}

template <typename T>
void look_up(const uint8_t* codes, int64_t count, const std::byte* table, std::byte* out) {
  const auto* values = reinterpret_cast<const T*>(table);
  auto* to = reinterpret_cast<T*>(out);
  for (int64_t i = 0; i < count; ++i) to[i] = values[codes[i]];
}

using Eight = uint16_t __attribute__((vector_size(16)));

/// Transposes 8 x 8 numbers of 16 bits: rows are exchanged with columns in pairs of 1, then 2, then 4.
void transpose_eight(const uint16_t* from, int64_t from_pitch, uint16_t* to, int64_t to_pitch) {
  Eight a[8], b[8];
  for (int i = 0; i < 8; ++i) std::memcpy(&a[i], from + i * from_pitch, sizeof(Eight));
  for (int i = 0; i < 8; i += 2) {
    b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
    b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
  for (int i = 0; i < 8; ++i) {
    if (i & 2) continue;
    a[i] = __builtin_shufflevector(b[i], b[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
    a[i + 2] = __builtin_shufflevector(b[i], b[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
  }
  for (int i = 0; i < 4; ++i) {
    b[i] = __builtin_shufflevector(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    b[i + 4] = __builtin_shufflevector(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
  for (int i = 0; i < 8; ++i) std::memcpy(to + i * to_pitch, &b[i], sizeof(Eight));
}

/// Copies a matrix [rows, columns] of elements T to `out` [columns, rows] whose rows are `pitch` elements apart.
template <typename T>
void transpose(const std::byte* from, int64_t rows, int64_t columns, std::byte* out, int64_t pitch) {
  constexpr int64_t block = 8, strip = 64;  // a strip's lines of the target stay in the cache until they are full
  const auto* source = reinterpret_cast<const T*>(from);
  auto* target = reinterpret_cast<T*>(out);
  for (int64_t c0 = 0; c0 < columns; c0 += strip)
    for (int64_t r0 = 0; r0 < rows; r0 += block)
      for (int64_t c = c0; c < std::min(columns, c0 + strip); c += block) {
        const int64_t width = std::min(block, columns - c), height = std::min(block, rows - r0);
        if constexpr (sizeof(T) == 2) {
          if (width == block && height == block) {
            transpose_eight(source + r0 * columns + c, columns, target + c * pitch + r0, pitch);
            continue;
          }
        }
        for (int64_t i = 0; i < width; ++i)
          for (int64_t k = 0; k < height; ++k) target[(c + i) * pitch + r0 + k] = source[(r0 + k) * columns + c + i];
      }
}

}  // namespace

/// Neighboring columns of one block.
struct PackedMatrix::Run {
  int64_t begin, end, block;
};

/// Buffers for the decoding of a tile. They are retained from tile to tile, so that memory is allocated once.
struct PackedMatrix::Tile {
  std::vector<uint8_t> codes, zero_codes;
  std::vector<float> scales, zeros, row_scales, row_zeros;
  std::vector<std::byte> tables;
  std::vector<std::byte> dense;  ///< [rows, columns] of the stored order
};

std::vector<PackedMatrix::Run> PackedMatrix::runs_of(const std::vector<int64_t>& blocks) {
  std::vector<Run> runs;
  const auto count = static_cast<int64_t>(blocks.size());
  for (int64_t i = 0, end = 0; i < count; i = end) {
    for (end = i + 1; end < count && blocks[static_cast<size_t>(end)] == blocks[static_cast<size_t>(i)];) ++end;
    runs.push_back({i, end, blocks[static_cast<size_t>(i)]});
  }
  return runs;
}

void PackedMatrix::check_shape(const ReadStored& read) const {
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
std::vector<int64_t> PackedMatrix::groups_at(int64_t first, int64_t count, const ReadStored& read) const {
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

/// Decodes a region of the stored order into `out`, whose rows are `pitch` bytes apart.
void PackedMatrix::decode_tile(int64_t matrix, const Region& region, const ReadStored& read, Tile& tile, std::byte* out,
                               int64_t pitch) const {
  const auto block_of = [&](int64_t first, int64_t count, bool of_rows, int64_t block) {
    if (groups && groups_of_rows == of_rows) return groups_at(first, count, read);
    std::vector<int64_t> blocks(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) blocks[static_cast<size_t>(i)] = (first + i) / block;
    return blocks;
  };
  const std::vector<int64_t> row_blocks = block_of(region.row, region.rows, true, block_rows),
                             column_blocks = block_of(region.col, region.cols, false, block_columns);
  const auto [top, bottom] = std::minmax_element(row_blocks.begin(), row_blocks.end());
  const auto [left, right] = std::minmax_element(column_blocks.begin(), column_blocks.end());
  const Region blocks{*top, *bottom - *top + 1, *left, *right - *left + 1};
  scale.read(matrix, blocks, read, tile.scales);
  if (global) {
    float factor = 0;
    const Strip whole{0, 1, sizeof(factor), sizeof(factor)};
    read(*global, {&whole, 1}, std::as_writable_bytes(std::span(&factor, 1)));
    for (float& one : tile.scales) one = divide_by_global ? one / factor : one * factor;
  }
  if (zero) {
    zero->read(matrix, blocks, read, tile.zero_codes);
    tile.zeros.resize(tile.zero_codes.size());
    for (size_t i = 0; i < tile.zeros.size(); ++i) tile.zeros[i] = zero_values[tile.zero_codes[i]];
  }
  codes.read(matrix, region, read, tile.codes);

  const std::vector<Run> runs = runs_of(column_blocks);
  const bool indexed = groups && !groups_of_rows;
  // where a block has more codes than there are values, each value is computed once
  const int64_t width = std::min(block_columns, codes.columns);
  const bool by_table = !indexed && width >= min_run && block_rows * width >= int64_t{1} << codes.bits;
  int64_t spread = -1;  // the row of blocks that the tile's tables, or its scales of columns, hold
  for (int64_t row = 0; row < region.rows; ++row) {
    const int64_t block = row_blocks[static_cast<size_t>(row)] - blocks.row, first = block * blocks.cols - blocks.col;
    const uint8_t* code = tile.codes.data() + row * region.cols;
    if (block != spread) by_table ? make_tables(runs, first, tile) : spread_scales(runs, first, tile);
    spread = block;
    by_table ? decode_by_table(runs, code, tile, out + row * pitch)
             : decode_row(code, region.cols, tile, out + row * pitch);
  }
}

/// Computes, for each run of columns, the dense value of each code. The scales of the runs' row begin at `first`.
void PackedMatrix::make_tables(const std::vector<Run>& runs, int64_t first, Tile& tile) const {
  const int64_t count = int64_t{1} << codes.bits, bytes = count * size_of(dtype);
  tile.tables.resize(static_cast<size_t>(bytes) * runs.size());
  std::array<float, 256> made;
  std::byte* table = tile.tables.data();
  for (const Run& run : runs) {
    const auto at = static_cast<size_t>(first + run.block);
    const float scale_here = tile.scales[at], zero_here = zero ? tile.zeros[at] : 0.0f;
    if (zero)
      for (int64_t i = 0; i < count; ++i)
        made[static_cast<size_t>(i)] = (values[static_cast<size_t>(i)] - zero_here) * scale_here;
    else
      for (int64_t i = 0; i < count; ++i) made[static_cast<size_t>(i)] = values[static_cast<size_t>(i)] * scale_here;
    if (rounded) round_to(*rounded, made.data(), count);
    store(made.data(), count, dtype, table);
    table += bytes;
  }
}

void PackedMatrix::decode_by_table(const std::vector<Run>& runs, const uint8_t* code, const Tile& tile,
                                   std::byte* out) const {
  const int64_t element = size_of(dtype), bytes = (int64_t{1} << codes.bits) * element;
  const std::byte* table = tile.tables.data();
  for (const Run& run : runs) {
    const int64_t count = run.end - run.begin;
    std::byte* to = out + run.begin * element;
    element == 2 ? look_up<uint16_t>(code + run.begin, count, table, to)
                 : look_up<uint32_t>(code + run.begin, count, table, to);
    table += bytes;
  }
}

/// Writes for each column the scale and the zero point of its block.
void PackedMatrix::spread_scales(const std::vector<Run>& runs, int64_t first, Tile& tile) const {
  const auto columns = static_cast<size_t>(runs.back().end);
  tile.row_scales.resize(columns);
  tile.row_zeros.resize(columns);
  for (const Run& run : runs) {
    const auto at = static_cast<size_t>(first + run.block);
    std::fill(tile.row_scales.begin() + run.begin, tile.row_scales.begin() + run.end, tile.scales[at]);
    if (zero) std::fill(tile.row_zeros.begin() + run.begin, tile.row_zeros.begin() + run.end, tile.zeros[at]);
  }
}

void PackedMatrix::decode_row(const uint8_t* code, int64_t columns, Tile& tile, std::byte* out) const {
  std::array<float, row_part> value;
  for (int64_t first = 0; first < columns; first += row_part, code += row_part) {
    const int64_t count = std::min(row_part, columns - first);
    const float *scales = tile.row_scales.data() + first, *zeros = tile.row_zeros.data() + first;
    float* to = value.data();
    if (first_value)
      for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(static_cast<int>(code[i])) + *first_value;
    else
      for (int64_t i = 0; i < count; ++i) to[i] = values[code[i]];
    if (zero)
      for (int64_t i = 0; i < count; ++i) to[i] = (to[i] - zeros[i]) * scales[i];
    else
      for (int64_t i = 0; i < count; ++i) to[i] *= scales[i];
    if (rounded) round_to(*rounded, to, count);
    store(to, count, dtype, out + first * size_of(dtype));
  }
}

void PackedMatrix::decode(int64_t matrix, const Region& region, const ReadStored& read, std::byte* out) const {
  if (region.rows <= 0 || region.cols <= 0) return;
  check_shape(read);
  Tile tile;
  const int64_t element = size_of(dtype);
  const Region all = transposed ? Region{region.col, region.cols, region.row, region.rows} : region;
  // rows of 32 share words that are packed along them
  const int64_t cols = std::min(all.cols, tile_codes / 32), rows = std::max<int64_t>(32, tile_codes / cols / 32 * 32);
  for (int64_t row = 0, some = 0; row < all.rows; row += some) {
    some = std::min(all.rows - row, rows - (all.row + row) % 32);
    for (int64_t col = 0; col < all.cols; col += cols) {
      const Region part{all.row + row, some, all.col + col, std::min(cols, all.cols - col)};
      if (!transposed) {
        decode_tile(matrix, part, read, tile, out + (row * all.cols + col) * element, all.cols * element);
        continue;
      }
      tile.dense.resize(static_cast<size_t>(part.rows * part.cols * element));
      decode_tile(matrix, part, read, tile, tile.dense.data(), part.cols * element);
      std::byte* to = out + (col * all.rows + row) * element;
      element == 2 ? transpose<uint16_t>(tile.dense.data(), part.rows, part.cols, to, all.rows)
                   : transpose<uint32_t>(tile.dense.data(), part.rows, part.cols, to, all.rows);
    }
  }
}

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
