// The loops that decide the speed of decoding, compiled once per instruction set. Plain data and pointers only: the files that are compiled
// for AVX see no inline function of any library, of which the linker might keep that one copy for all machines.
#pragma once
#include <cstdint>

namespace pm::ops {

/// What an element's bits mean. I8 is for weights only.
enum class Element : uint8_t { F32, F16, BF16, I8 };

/// Most rows of x that gemv takes.
inline constexpr int64_t gemv_rows = 8;

/// y = x W^T for a few rows of x: bound by reading W, so that W is read once, in the type in which it is stored. x [rows, in], w [out, in]:
/// y[r, o] for o in [first, last), y with `out` columns. 1 <= rows <= gemv_rows. Products and sums are fp32; an element's bits depend on
/// neither `rows` nor the range.
struct Gemv {
  Element type = Element::F32;
  const void* w = nullptr;
  const float* x = nullptr;
  float* y = nullptr;
  int64_t rows = 0, in = 0, out = 0, first = 0, last = 0;
  const uint16_t* scales = nullptr;   ///< I8: bf16 [out, ceil(in / group)], by which the weights of `group` inputs are multiplied
  int64_t group = 0;
  int64_t w_stride = 0, scale_stride = 0;   ///< I8: elements from row to row
};

/// Keys from .. to - 1 of one sequence, seen by `heads` query heads that share a kv head: with score = scale q k + bias, for each head the
/// largest score, the sum of exp(score - largest) and the values weighted by these. With a softcap, which goes without a bias, a score is
/// softcap * tanh(score / softcap). from is a multiple of 16; to - from <= attend_keys.
struct Attend {
  Element type;                 ///< of keys and values
  int64_t heads, d;
  const float* q;               ///< [heads, d]
  const void *keys, *values;    ///< this kv head's part of block 0, [16, d]; block b lies block_stride elements times b further
  int64_t block_stride;
  const int32_t* blocks;        ///< of the sequence: key i is row i % 16 of block blocks[i / 16]
  int64_t from, to, hidden;     ///< keys before `hidden` (a window's begin) count for nothing; from <= hidden < to
  float scale, softcap;         ///< softcap 0: none
  const float* bias;            ///< [heads, bias_stride], of key 0; nullptr: none
  int64_t bias_stride;
  float *largest, *sums, *out;  ///< [heads], [heads], [heads, d]
};
inline constexpr int64_t attend_keys = 512;

struct Kernels {
  const char* name;
  int64_t fp32_rows, half_rows;   ///< most rows of x for which gemv, eight rows at a time, is faster than a matrix product; measured
  void (*gemv)(const Gemv&);
  void (*attend)(const Attend&);
  /// out[i] = silu(gate[i]) * up[i]; out may be gate or up.
  void (*gated_silu)(const float* gate, const float* up, float* out, int64_t count);
};

/// All that this processor runs, the widest first; never empty.
struct SupportedKernels { const Kernels* list[3]; int count; };
const SupportedKernels& supported_kernels();
/// The widest.
inline const Kernels& kernels() { return *supported_kernels().list[0]; }

}  // namespace pm::ops
