// SPDX-License-Identifier: Apache-2.0
// Matrix products (GEMM) of many rows by a CPU's matrix unit (AMX), which multiplies tiles of bf16 numbers and sums in
// fp32. Other numbers go in as sums of bf16 numbers: each part is what the parts before it lack, rounded to bf16. Three
// parts are an fp32 number, two parts fp16 numbers and codes with their scales. Like those of kernels.h, the interface
// is plain data and pointers.
#pragma once
#include <cstdint>

#include "worker/ops/cpu/kernels/prefill.h"

namespace pm::ops {

inline constexpr int64_t tile_size = 16;         ///< rows of a tile, and fp32 columns of a tile of sums
inline constexpr int64_t tile_inputs = 32;       ///< inputs that one step of the unit multiplies
inline constexpr int64_t panel = 2 * tile_size;  ///< rows of x, or of weights, that a block of sums has
/// bf16 numbers that one step of a panel takes in each of its parts.
inline constexpr int64_t panel_step = panel * tile_inputs;
inline constexpr int64_t input_parts = 3;  ///< of x, of queries, and of the weights of a softmax

/// y = x W^T for packed operands: some steps of the inputs, for all panels of x and some of W. `w` has [panels of
/// weights][steps][w_parts][panel_step] numbers, panel p of x begins at x + p * x_panel and has
/// [steps][input_parts][panel_step]. The product of the last parts of both is left out: it counts 2^-24 of the whole.
struct TileProduct {
  const uint16_t *x = nullptr, *w = nullptr;
  int64_t x_panel = 0;
  int64_t rows = 0;     ///< of x
  int64_t outputs = 0;  ///< rows of W
  int64_t steps = 0;
  int w_parts = 1;                  ///< 1 or 2
  float* sums = nullptr;            ///< [panels of x][panels of w][panel * panel], of steps before and after these
  bool begins = true, ends = true;  ///< whether these are the first and the last steps; both: `sums` is not used
  float* y = nullptr;               ///< [rows, stride], where it ends
  int64_t stride = 0;
};

/// Numbers of a key that attention on tiles takes.
inline constexpr int64_t min_tiled_width = 16, max_tiled_width = 256;

/// The functions of a matrix unit.
struct Tiles {
  /// Packs `inputs` inputs of up to 16 rows of x as half `half` of a panel: rows [rows, stride] ->
  /// [steps][input_parts][panel_step]. What lacks is zero.
  void (*pack_inputs)(const float* x, int64_t rows, int64_t inputs, int64_t stride, int64_t half, uint16_t* to);
  /// Packs a row of weights as row `row` of a panel, in one part: [inputs] -> [steps][1][panel_step].
  void (*pack_bf16)(const uint16_t* w, int64_t inputs, int64_t row, uint16_t* to);
  /// Likewise of fp32 weights, in two parts: [inputs] -> [steps][2][panel_step].
  void (*pack_fp32)(const float* w, int64_t inputs, int64_t row, uint16_t* to);
  void (*multiply)(const TileProduct&);
  /// Attention as Kernels has it, of keys and values in BF16 with a d of these widths, and without biases. The packed
  /// forms are its own, and not larger.
  void (*pack_keys)(const PackKeys&);
  void (*attend_rows)(const AttendRows&);
};

}  // namespace pm::ops
