// SPDX-License-Identifier: Apache-2.0
// Products of many rows by a CPU's matrix unit, which multiplies tiles of bf16 numbers and sums in fp32. A number that
// is no bf16 number goes in as the sum of two: hi = bf16(v) and lo = bf16(v - hi), which is v to 2^-16 of its size. So
// the unit computes what fp32 activations and weights give, but for roundings of the size that the sums have anyway.
// Weights in bf16 have one part. Like those of kernels.h, the interface is plain data and pointers.
#pragma once
#include <cstdint>

namespace pm::ops {

inline constexpr int64_t tile_size = 16;         ///< rows of a tile, and fp32 columns of a tile of sums
inline constexpr int64_t tile_inputs = 32;       ///< inputs that one step of the unit multiplies
inline constexpr int64_t panel = 2 * tile_size;  ///< rows of x, or of weights, that a block of sums has
/// bf16 numbers that one step of a panel takes in each of its parts.
inline constexpr int64_t panel_step = panel * tile_inputs;
inline constexpr int64_t input_parts = 2;  ///< of x

/// y = x W^T for packed operands: some steps of the inputs, for all panels of x and some of W. `w` has [panels of
/// weights][steps][w_parts][panel_step] numbers, panel p of x begins at x + p * x_panel and has [steps][2][panel_step].
struct TileProduct {
  const uint16_t *x = nullptr, *w = nullptr;
  int64_t x_panel = 0;
  int64_t rows = 0;     ///< of x
  int64_t outputs = 0;  ///< rows of W
  int64_t steps = 0;
  int w_parts = 1;
  float* sums = nullptr;            ///< [panels of x][panels of w][panel * panel], of steps before and after these
  bool begins = true, ends = true;  ///< whether these are the first and the last steps; both: `sums` is not used
  float* y = nullptr;               ///< [rows, stride], where it ends
  int64_t stride = 0;
};

struct Tiles {
  /// Packs `inputs` inputs of up to 16 rows of x as half `half` of a panel: rows [rows, stride] ->
  /// [steps][2][panel_step]. What lacks is zero.
  void (*pack_inputs)(const float* x, int64_t rows, int64_t inputs, int64_t stride, int64_t half, uint16_t* to);
  /// Packs a row of weights as row `row` of a panel, in one part: [inputs] -> [steps][1][panel_step].
  void (*pack_bf16)(const uint16_t* w, int64_t inputs, int64_t row, uint16_t* to);
  /// Likewise of fp32 weights, in two parts: [inputs] -> [steps][2][panel_step].
  void (*pack_fp32)(const float* w, int64_t inputs, int64_t row, uint16_t* to);
  void (*multiply)(const TileProduct&);
};

}  // namespace pm::ops
