// SPDX-License-Identifier: Apache-2.0
// The CPU kernels that bound decode speed, compiled once per instruction set. The interface is plain data and pointers:
// files compiled for AVX include no inline function of a library, because the linker might keep that copy for all CPUs.
#pragma once
#include <cstdint>

#include "contract/kv_block.h"
#include "worker/ops/cpu/kernels/packed_product.h"
#include "worker/ops/cpu/kernels/prefill.h"
#include "worker/ops/cpu/kernels/tiles.h"

namespace pm::ops {

/// Element types. I8 and I4 are codes of weights (worker/ops/quantized_matrix.h), I8 also those of cached keys and
/// values (worker/ops/kv_codes.h).
enum class Element : uint8_t { F32, F16, BF16, I8, I4 };

/// Largest number of rows of x that Kernels::coded_products get; measured on CPUs with AVX2 and with AVX-512 VNNI.
inline constexpr int64_t coded_rows = 12;

/// Largest number of rows of x in one gemv call.
inline constexpr int64_t max_gemv_rows = 8;

/// y = x W^T for a few rows of x. Reading W bounds the speed, so that W is read once, in its stored type. x [rows, in],
/// w [out, in]: y[r, o] for o in [first, last), y with `out` columns. 1 <= rows <= max_gemv_rows. Products and sums are
/// fp32; the bits of an element depend on neither `rows` nor the range.
struct Gemv {
  Element type = Element::F32;
  const void* w = nullptr;
  const float* x = nullptr;
  float* y = nullptr;
  int64_t rows = 0, in = 0, out = 0, first = 0, last = 0;
  const uint16_t* scales =
      nullptr;        ///< codes: bf16 [out, ceil(in / group)], by which the weights of `group` inputs are multiplied
  int64_t group = 0;  ///< I4: 32
  int64_t w_stride = 0, scale_stride = 0;  ///< codes: bytes of w, and scales, from row to row
};

/// Attention of `heads` query heads that share a kv head to keys from .. to - 1 of one sequence. With score = scale q k
/// + bias it computes, for each head, the largest score, the sum of exp(score - largest) and the values weighted by
/// these exponentials. With a softcap, which excludes a bias, a score is softcap * tanh(score / softcap). `from` is a
/// multiple of 16; to - from <= max_attend_keys.
struct Attend {
  Element type;  ///< of keys and values
  int64_t heads, d;
  const float* q;  ///< [heads, d]
  const void *keys,
      *values;  ///< this kv head's part of block 0, [16, d], and of type I8 then the scales [16] F32 of its keys; block
                ///< b lies block_stride elements times b further
  int64_t block_stride;
  const int32_t* blocks;     ///< of the sequence: key i is row i % 16 of block blocks[i / 16]
  int64_t from, to, hidden;  ///< keys before `hidden` (outside the window) are masked; from <= hidden < to
  float scale, softcap;      ///< softcap 0: none
  const float* bias;         ///< [heads, bias_stride], of key 0; nullptr: none
  int64_t bias_stride;
  float *largest, *sums, *out;  ///< [heads], [heads], [heads, d]
  bool bf16 = false;            ///< the model computes in bf16: queries and weights may be rounded to it
};
inline constexpr int64_t max_attend_keys = 512;
static_assert(max_attend_keys % block_tokens == 0, "a split of the keys begins at a KV block");

struct Kernels {
  const char* name;
  int64_t fp32_rows, half_rows, code_rows;  ///< up to so many rows of x the products of few rows are faster than those
                                            ///< of many, for weights of each width; measured
  void (*gemv)(const Gemv&);
  /// Writes rows [first, last) of the weights to `out` [last - first, in]; codes are multiplied by their scales. It
  /// reads nothing of x.
  void (*widen)(const Gemv&, float* out);
  void (*attend)(const Attend&);
  void (*pack_keys)(const PackKeys&);
  void (*attend_rows)(const AttendRows&);
  /// out[i] = silu(gate[i]) * up[i]; out may be gate or up.
  void (*silu_and_mul)(const float* gate, const float* up, float* out, int64_t count);
  const PackedProducts* few_products = nullptr;   ///< of few rows with weights in a floating-point type; nullptr: gemv
  const PackedProducts* fp32_products = nullptr;  ///< of many rows; nullptr: ATen's GEMM
  const PackedProducts* bf16_products = nullptr;  ///< of models in BF16, weights as codes included, and any number of
                                                  ///< rows; nullptr: this CPU's vector units do not multiply bf16
                                                  ///< numbers, or AMX does. With them, attention to keys in BF16
                                                  ///< rounds q and weights too
  const PackedProducts* integer_products = nullptr;  ///< of weights in I8 with a scale for each row, and of x rounded
                                                     ///< to integers; nullptr: both enter other products
  const PackedProducts* coded_products[2] = {};  ///< of models in 16 bits with weights as codes, of eight and of four
                                                 ///< bits, in groups of 32, and of x rounded to integers of 16 bits
                                                 ///< with a scale for each group; nullptr: codes enter other products
  const Tiles* tiles = nullptr;                  ///< of the matrix unit; nullptr: this CPU has none
  int64_t tiled_rows[2] = {};  ///< from so many rows of x on they are faster than gemv, for weights of BF16 and of
                               ///< other types; measured
};

/// The kernels that this CPU supports, the fastest first; never empty.
struct SupportedKernels {
  const Kernels* list[5];
  int count;
};
const SupportedKernels& supported_kernels();
/// Returns the fastest kernels.
inline const Kernels& kernels() { return *supported_kernels().list[0]; }

}  // namespace pm::ops
