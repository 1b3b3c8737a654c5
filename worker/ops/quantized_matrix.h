// SPDX-License-Identifier: Apache-2.0
// Weights as integer codes with group scales: a half or a quarter of the bytes of 16-bit weights to read for each
// token. Sums are fp32.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstddef>

namespace pm::ops {

/// How a row of a matrix lies as codes. Eight bits: an int8 from -127 to 127 for each input. Four bits: numbers from -8
/// to 7, 8 added, in groups of 32 inputs: byte b of a group's 16 has input b in its low half and input 16 + b in its
/// high half. The last group may have fewer inputs; with four bits the codes of those it lacks are those of 0.
struct CodeLayout {
  int64_t in = 0, group = 32;  ///< inputs of a row, and of those that share a scale
  int bits = 8;                ///< of a code: 8, or 4 in groups of 32
  int input_bits = 0;          ///< 8: x is rounded too (linear() below), and a group has all inputs; 0: it is not

  constexpr int64_t groups() const { return (in + group - 1) / group; }
  constexpr int64_t code_bytes() const { return bits == 4 ? groups() * group / 2 : in; }
  /// Returns the bytes of a row whose scales follow its codes.
  constexpr int64_t row_bytes() const { return code_bytes() + groups() * 2; }
  at::ScalarType code_type() const { return bits == 4 ? at::kByte : at::kChar; }
};

/// W[o, i] = number[o, i] x scales[o, i / group]: codes [out, code bytes] and scales [out, groups] bf16. Each row is
/// contiguous; rows may be strided, as where the scales of each row follow its codes.
struct QuantizedMatrix {
  at::Tensor codes, scales;
  CodeLayout layout;
  /// The type of the model's other parameters. If it has 16 bits, a device may round x and W to it, for its matrix
  /// units, or x to integers of 16 bits with a scale for each group.
  at::ScalarType compute_type = at::kFloat;

  int64_t out() const { return codes.size(0); }
  /// Returns a view of some rows.
  QuantizedMatrix rows(int64_t first, int64_t count) const {
    return {codes.narrow(0, first, count), scales.narrow(0, first, count), layout, compute_type};
  }
};

/// Quantizes rows by groups, exactly in fp32; number = w / scale, rounded half to even, and 0 where the scale is 0.
/// Eight bits: scale = largest |w| of the group / 127, rounded up to bf16. Four bits: scale = the w of the largest |w|
/// (the first of these) / -8, nearest bf16, half to even, numbers from -8 to 7; but a whole group that was decoded from
/// such numbers without zero points has them and their scale again. `rows` [count, in] fp32 -> codes [count, code
/// bytes], scales [count, groups] as bf16 bits. Returns whether all of `rows` is finite.
bool quantize(const float* rows, int64_t count, const CodeLayout&, std::byte* codes, uint16_t* scales);
/// Returns w [out, in] fp32 on the CPU, contiguous and finite, quantized.
QuantizedMatrix quantized(const at::Tensor& w, CodeLayout, at::ScalarType compute_type = at::kFloat);

/// Returns a view of rows whose scales follow their codes, bytes [rows, row_bytes()] uint8, contiguous, as a matrix.
/// Scales that are not aligned for bf16 are copied.
QuantizedMatrix quantized_rows(const at::Tensor& bytes, const CodeLayout&, at::ScalarType compute_type = at::kFloat);

/// Returns numbers x scales in fp32.
at::Tensor dequantized(const QuantizedMatrix&);

/// Returns x [tokens, in] fp32 rounded as with `input_bits` 8: each row to integers times the largest |x| of the row /
/// 127; integers from -127 to 127, half to even.
at::Tensor rounded_inputs(const at::Tensor& x);

/// x [tokens, in] -> x W^T + bias [tokens, out] of type `result`. bias [out] is of any float type; undefined: no bias.
/// With `input_bits` 8 it is the product of rounded_inputs(x); a CPU may multiply the integers.
at::Tensor linear(const at::Tensor& x, const QuantizedMatrix&, const at::Tensor& bias,
                  at::ScalarType result = at::kFloat);

}  // namespace pm::ops
