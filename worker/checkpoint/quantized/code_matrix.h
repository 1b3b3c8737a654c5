// SPDX-License-Identifier: Apache-2.0
// A quantised matrix is stored as integer codes, packed or not, and scales. Both are read by rectangles.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "worker/checkpoint/quantized/float_codes.h"
#include "worker/checkpoint/quantized/packed_matrix.h"

namespace pm::checkpoint {

using Bytes = std::vector<uint8_t>;

/// Codes of 1 to 8 bits of one matrix [rows, columns], or of several behind each other.
struct CodeMatrix {
  /// The direction in which codes of a word neighbor each other. Words are little-endian, the first code lowest.
  enum class Packing {
    AlongColumns,  ///< in a row, which begins at a whole byte; codes of 8 bits are not packed
    HighFirst,     ///< in a row, of 4 bits, the first of a byte in its upper half
    Interleaved,   ///< in a row, of 4 bits in words of 32 that hold codes 0 2 4 6 1 3 5 7, the first lowest
    AlongRows,     ///< in a column of words of 32 bits [ceil(rows * bits / 32), columns]
  };
  /// The numbers that codes stand for.
  enum class Number {
    Unsigned,  ///< the code + `first_value`
    TwosComplement,
    E2M1,
    E4M3,
    Listed,  ///< that which `list` has at the code
  };
  TensorInfo stored;
  int64_t rows = 0, columns = 0;
  int bits = 8;
  Packing packing = Packing::AlongColumns;
  Number number = Number::Unsigned;
  float first_value = 0;
  std::optional<TensorInfo> list = {};  ///< F32 [2^bits]

  /// Returns the bytes of one row of words and of one matrix.
  int64_t row_bytes() const;
  int64_t matrix_bytes() const;
  /// A region's codes as they are stored.
  struct Words {
    int64_t first_bit = 0;  ///< of the region's first column, or row where rows are packed
    int64_t pitch = 0;      ///< bytes of a row
    Bytes bytes;
    std::vector<float> list;
  };
  /// Reads the codes of a region of one matrix.
  void read(int64_t matrix, const Region&, const ReadStored&, Words&) const;
  /// Returns in `out` the numbers of [col, col + count) of a row of the region.
  void to_numbers(const Words&, int64_t row, int64_t col, int64_t count, float* out) const;

 private:
  const uint8_t* unpack(const Words&, int64_t row, int64_t col, int64_t count, uint8_t* out) const;
};

/// Scales of one matrix [rows, columns], or of several behind each other.
struct ScaleMatrix {
  /// How bytes stand for scales that are quantised themselves, in blocks that go on from row to row: that which `list`
  /// has at the byte, times the scale of its block, plus `offset`.
  struct Codes {
    TensorInfo list, scale;  ///< F32 [256], F32 [blocks]
    int64_t block = 0;
    float offset = 0;
  };
  TensorInfo stored;  ///< F32, F16, BF16, or bytes with a table or codes
  const ByteValues* table = nullptr;
  int64_t rows = 1, columns = 1;
  bool each = false;  ///< whether every matrix has scales of its own; else all share them
  std::optional<Codes> codes = {};
  float divisor = 1;  ///< of all scales

  /// Reads the scales of a region of one matrix, row after row. `bytes` is a buffer.
  void read(int64_t matrix, const Region&, const ReadStored&, Bytes& bytes, std::vector<float>& out) const;
};

}  // namespace pm::checkpoint
