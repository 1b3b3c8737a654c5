// SPDX-License-Identifier: Apache-2.0
// INT8 weights with group scales: half the bytes of 16-bit weights to read for each token. Sums are fp32.
#pragma once
#include <ATen/core/Tensor.h>

namespace pm::ops {

/// W[o, i] = numbers[o, i] x scales[o, i / group], with numbers [out, in] int8 from -127 to 127 and scales [out,
/// ceil(in / group)] bf16. Each row is contiguous; rows may be strided, as where the scales of each row follow its
/// numbers.
struct QuantizedMatrix {
  at::Tensor codes, scales;
  int64_t group = 0;  ///< inputs that share a scale; the last group of a row may be shorter
  /// The type of the model's other parameters. Where it has 16 bits, a device may round x and W to it, for its matrix
  /// units.
  at::ScalarType compute_type = at::kFloat;
};

/// Quantises rows by groups, exactly in fp32: scale = largest |w| of the group / 127, rounded up to bf16; number = w /
/// scale, rounded half to even. A group of zeros has scale 0. `rows` [count, in] fp32 -> numbers [count, in], scales
/// [count, ceil(in / group)] as bf16 bits. Returns whether all of `rows` is finite.
bool quantize(const float* rows, int64_t count, int64_t in, int64_t group, int8_t* numbers, uint16_t* scales);

/// Returns the bytes of a row whose scales follow its numbers.
constexpr int64_t quantized_row_bytes(int64_t in, int64_t group) { return in + (in + group - 1) / group * 2; }
/// Returns a view of such rows, bytes [rows, quantized_row_bytes] uint8, contiguous, as a matrix. Scales that are not
/// aligned for bf16 are copied.
QuantizedMatrix quantized_rows(const at::Tensor& bytes, int64_t in, int64_t group,
                               at::ScalarType compute_type = at::kFloat);

/// Returns numbers x scales in fp32.
at::Tensor dequantized(const QuantizedMatrix&);

/// x [tokens, in] -> x W^T + bias [tokens, out] of type `result`. bias [out] is of any float type; undefined: no bias.
at::Tensor linear(const at::Tensor& x, const QuantizedMatrix&, const at::Tensor& bias,
                  at::ScalarType result = at::kFloat);

}  // namespace pm::ops
