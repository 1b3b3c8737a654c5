// SPDX-License-Identifier: Apache-2.0
// Matrix products (GEMM) by a CPU's vector units. Weights are read as they are stored, for vectors hold consecutive
// inputs of both operands: the products of a vector stay in their lanes, and the lanes are added at the end. So an
// element's sum has the same order, and its bits are the same, whatever the number of rows. Like those of kernels.h,
// the interface is plain data and pointers.
#pragma once
#include <cstdint>

namespace pm::ops {

struct Gemv;

/// How weights are codes (worker/ops/quantized_matrix.h).
struct PackedCodes {
  int bits = 0;                      ///< 0: none; 8, or 4 in groups of 32
  const uint16_t* scales = nullptr;  ///< bf16, rows scale_stride apart
  int64_t scale_stride = 0;
  int log2_of_group = 0;  ///< inputs that share a scale; of a group that has all inputs anything larger
};

/// y = x W^T for some of the inputs: from input 0 on it writes y, from another on it adds to y.
struct PackedProduct {
  const void* x = nullptr;            ///< packed tiles; the one whose first row is r begins at number r * x_inputs
  int64_t x_inputs = 0;               ///< inputs of a row, rounded up to whole vectors
  int64_t rows = 0;                   ///< of all tiles
  int64_t first_tile = 0, tiles = 0;  ///< of which products are computed
  const void* w = nullptr;  ///< of input `first`: [outputs, inputs], rows w_stride numbers (codes: bytes) apart
  int64_t w_stride = 0, outputs = 0;
  PackedCodes codes = {};  ///< operands in bf16 only: code * scale, rounded to bf16. `first` is 0, with all inputs
  int64_t first = 0;       ///< a multiple of `pass`
  int64_t inputs = 0;      ///< from there on, a multiple of `pass` or all that are left
  void* y = nullptr;       ///< [rows, stride] fp32, or int32 if operands are integers
  int64_t stride = 0;
};

/// How a row of x became integers: x is about integer * scale.
struct RoundedRow {
  float scale;      ///< the largest |x| / 127; not finite if one of x is not
  uint32_t excess;  ///< what its products are too large by: integers of the weights enter with 128 added to them
};
inline constexpr int64_t most_integer_inputs = 65536;  ///< whose products int32 holds: 255 * 127 * 65536 < 2^31

enum class OperandType : uint8_t { Fp32, Bf16, Integers };

/// The products of one type of operands. Sums are fp32, or int32 of integers.
struct PackedProducts {
  OperandType operands;
  int64_t vector;        ///< inputs of one vector
  int64_t tile_rows;     ///< most rows of a tile
  int64_t tile_outputs;  ///< outputs that are computed together
  int64_t pass;          ///< inputs that are summed up together: an element is the sum of its passes
  int64_t bytes;         ///< of a number
  /// Packs the rows of one tile, [rows, stride], as [vectors][rows][vector]. What lacks is zero. Integers, -127 to 127,
  /// half to even, also need `rounded` [rows].
  void (*pack)(const float* x, int64_t rows, int64_t inputs, int64_t stride, void* to, RoundedRow* rounded);
  void (*multiply)(const PackedProduct&);
  /// Computes outputs [first, last) of weights as they are stored; what the product says of weights and inputs is not
  /// read. nullptr: multiply().
  void (*multiply_any)(const Gemv& weights, const PackedProduct&) = nullptr;
};

/// Returns whether codes of eight bits in groups of that size are read as they are: groups of a power of two, from 32
/// on, or one for all inputs. Sets their log2_of_group.
static inline bool reads_groups(int64_t group, int64_t inputs, int* log2_of_group) {
  *log2_of_group = 5;
  while (*log2_of_group < 62 && int64_t{1} << *log2_of_group < group) ++*log2_of_group;
  return group >= inputs || int64_t{1} << *log2_of_group == group;
}

/// Rows are shared out evenly over as few tiles as there can be. The functions are static, for the linker must not take
/// the copy of an instruction set for all.
static inline int64_t tiles_of(int64_t rows, int64_t tile_rows) { return (rows + tile_rows - 1) / tile_rows; }
struct TileRows {
  int64_t least, larger;  ///< rows of a tile; how many tiles, the first ones, have one more
};
static inline TileRows tile_rows_of(int64_t rows, int64_t tiles) { return {rows / tiles, rows % tiles}; }
static inline int64_t first_row(TileRows of, int64_t tile) {
  return tile * of.least + (tile < of.larger ? tile : of.larger);
}

}  // namespace pm::ops
