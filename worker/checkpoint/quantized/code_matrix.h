// SPDX-License-Identifier: Apache-2.0
// A quantised matrix is stored as integer codes, packed or not, and scales. Both are read by rectangles.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/quantized/float_codes.h"

namespace pm::checkpoint {

/// Reads strips of a tensor as it is stored, as Checkpoint::read and DirectFiles::read do.
using ReadStored = std::function<void(const TensorInfo&, std::span<const Strip>, std::span<std::byte>)>;

/// Rows [row, row + rows) and columns [col, col + cols) of a matrix.
struct Region {
  int64_t row = 0, rows = 0, col = 0, cols = 0;
};

/// Codes of 1 to 8 bits of one matrix [rows, columns], or of several behind each other.
struct CodeMatrix {
  /// The direction in which codes of a word neighbor each other. Words are little-endian, the first code lowest.
  enum class Packing {
    AlongColumns,  ///< in a row, which begins at a whole byte; codes of 8 bits are not packed
    AlongRows,     ///< in a column of words of 32 bits [ceil(rows * bits / 32), columns]
  };
  TensorInfo stored;
  int64_t rows = 0, columns = 0;
  int bits = 8;
  Packing packing = Packing::AlongColumns;
  /// Along columns with 4 bits: which 4 bits of a word of 32 hold its i-th code.
  std::array<uint8_t, 8> nibbles{0, 1, 2, 3, 4, 5, 6, 7};

  /// Returns the bytes of one row of words and of one matrix.
  int64_t row_bytes() const;
  int64_t matrix_bytes() const;
  /// Reads the codes of a region of one matrix as bytes, row after row.
  void read(int64_t matrix, const Region&, const ReadStored&, std::vector<uint8_t>& out) const;

 private:
  void unpack_row(const uint8_t* words, int64_t first_bit, int64_t count, uint8_t* out) const;
};

/// Scales of one matrix [rows, columns], or of several behind each other.
struct ScaleMatrix {
  TensorInfo stored;  ///< F32, F16, BF16, or bytes with a table
  const ByteValues* table = nullptr;
  int64_t rows = 1, columns = 1;
  bool each = false;  ///< whether every matrix has scales of its own; else all share them

  /// Reads the scales of a region of one matrix, row after row.
  void read(int64_t matrix, const Region&, const ReadStored&, std::vector<float>& out) const;
};

}  // namespace pm::checkpoint
