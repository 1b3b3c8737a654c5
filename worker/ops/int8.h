// Matrices as int8 numbers with scales: half the bytes of 16 bits to read for each token. x, sums and results stay fp32.
#pragma once
#include <ATen/core/Tensor.h>

namespace pm::ops {

/// W[o, i] = numbers[o, i] x scales[o, i / group]: numbers [out, in] int8 from -127 to 127, scales [out, ceil(in / group)] bf16. Elements of a row lie beside each other;
/// rows may lie apart, as where the scales of each follow its numbers.
struct Int8Matrix {
  at::Tensor numbers, scales;
  int64_t group = 0;             ///< inputs that share a scale; the last of an output may have fewer
};

/// The rule by which matrices are quantised, exact in fp32: scale = largest |w| of the group / 127, rounded up to bf16; number = w / scale, rounded half to even.
/// A group of zeros has scale 0. `rows` [count, in] fp32 -> numbers [count, in], scales [count, ceil(in / group)] as bits. Returns whether all of `rows` is finite.
bool quantise(const float* rows, int64_t count, int64_t in, int64_t group, int8_t* numbers, uint16_t* scales);

/// Bytes of a row whose scales follow its numbers.
constexpr int64_t int8_row_bytes(int64_t in, int64_t group) { return in + (in + group - 1) / group * 2; }
/// The matrix of such rows: bytes [rows, int8_row_bytes] uint8, contiguous. The same memory, but for scales that no bf16 can lie at, which are copied.
Int8Matrix int8_rows(const at::Tensor& bytes, int64_t in, int64_t group);

/// numbers x scales, fp32; of some rows that belong together as well.
at::Tensor dequantised(const Int8Matrix&);

/// x [tokens, in] fp32 -> x W^T + bias [tokens, out] fp32. bias [out] of any float type; undefined: none.
at::Tensor linear(const at::Tensor& x, const Int8Matrix&, const at::Tensor& bias);

}  // namespace pm::ops
