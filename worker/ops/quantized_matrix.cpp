// SPDX-License-Identifier: Apache-2.0
// Quantizes fp32 rows to codes with group scales, and the way back.
#include "worker/ops/quantized_matrix.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace pm::ops {

namespace {

uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

constexpr float round_to_whole = 0x1.8p23f;

/// Returns the nearest whole number, half to even, of a number whose magnitude is below 2^22.
float whole(float value) { return value + round_to_whole - round_to_whole; }

/// Returns the largest magnitude's bits: without the sign the order of bits is that of numbers, with infinities and
/// NaNs above all.
uint32_t largest_bits(const float* w, int64_t size) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < size; ++i) largest = std::max(largest, bits_of(w[i]) & 0x7fffffffu);
  return largest;
}

/// Writes the codes of a group of at most `group` inputs and returns its scale's bits.
uint16_t eight_bits(const float* w, int64_t size, uint32_t largest, int8_t* codes) {
  const uint32_t bits = (bits_of(float_of(largest) / 127.f) + 0xffffu) & 0xffff0000u;
  if (bits == 0) {
    std::fill_n(codes, size, int8_t{0});
    return 0;
  }
  const float scale = float_of(bits);
  for (int64_t i = 0; i < size; ++i) codes[i] = static_cast<int8_t>(static_cast<int32_t>(whole(w[i] / scale)));
  return static_cast<uint16_t>(bits >> 16);
}

/// Returns the bits of the nearest bf16, half to even, as those of a float.
uint32_t rounded_bits(float value) {
  const uint32_t exact = bits_of(value);
  return (exact + 0x7fffu + (exact >> 16 & 1u)) & 0xffff0000u;
}

constexpr float least_four_bits = -8, most_four_bits = 7;

/// Returns whether all of w are the scale times numbers of four bits, but for what 16-bit types round: w itself, and
/// the one of w from which the scale is.
bool are_multiples(const float* w, int64_t size, float scale) {
  constexpr float tolerance = 0x1p-7;
  const float inverse = 1 / scale;
  for (int64_t i = 0; i < size; ++i) {
    const float exact = w[i] * inverse, number = whole(exact);
    const bool one = std::abs(exact - number) <= tolerance * std::abs(number) && number >= least_four_bits &&
                     number <= most_four_bits;
    if (!one) return false;
  }
  return true;
}

/// Returns the sum of what numbers of four bits with this scale miss of w.
float missed(const float* w, int64_t size, float scale) {
  float sum = 0;
  for (int64_t i = 0; i < size; ++i)
    sum += std::abs(w[i] - scale * std::clamp(whole(w[i] / scale), least_four_bits, most_four_bits));
  return sum;
}

/// Returns the bits of the scale of weights that were decoded from four bits, as checkpoints store them in groups of
/// this size or a multiple of it, without zero points: their numbers are then found again. 0 where there is no such
/// scale. `extreme` is the w of the largest |w|.
uint32_t scale_of_decoded(const float* w, int64_t size, float extreme) {
  uint32_t best = 0;
  float least = 0;
  for (float number = least_four_bits; number <= most_four_bits; ++number) {
    if (number == 0 || !are_multiples(w, size, extreme / number)) continue;
    const uint32_t nearest = rounded_bits(extreme / number);
    for (const uint32_t bits : {nearest, nearest - 0x10000u, nearest + 0x10000u}) {  // `extreme` itself was rounded
      const float sum = missed(w, size, float_of(bits));
      if (best == 0 || sum < least) best = bits, least = sum;
    }
  }
  return best;
}

uint16_t four_bits(const float* w, int64_t size, uint32_t largest, int64_t group, uint8_t* codes) {
  float extreme = 0;
  for (int64_t i = size - 1; i >= 0; --i)
    if ((bits_of(w[i]) & 0x7fffffffu) == largest) extreme = w[i];
  uint32_t bits = rounded_bits(extreme / least_four_bits);
  if (size == group && bits != 0) {
    if (const uint32_t decoded = scale_of_decoded(w, size, extreme); decoded != 0) bits = decoded;
  }
  const float scale = float_of(bits);
  if (scale == 0.f) {
    std::fill_n(codes, group / 2, uint8_t{0x88});
    return 0;
  }
  const auto code = [&](int64_t i) -> unsigned {
    if (i >= size) return 8;
    return static_cast<unsigned>(std::clamp(whole(w[i] / scale), least_four_bits, most_four_bits) + 8.f);
  };
  for (int64_t b = 0; b < group / 2; ++b) codes[b] = static_cast<uint8_t>(code(b) | code(b + group / 2) << 4);
  return static_cast<uint16_t>(bits >> 16);
}

}  // namespace

bool quantize(const float* rows, int64_t count, const CodeLayout& layout, std::byte* codes, uint16_t* scales) {
  bool finite = true;
  for (int64_t row = 0; row < count; ++row, rows += layout.in, codes += layout.code_bytes()) {
    for (int64_t first = 0; first < layout.in; first += layout.group) {
      const int64_t size = std::min(layout.group, layout.in - first);
      uint32_t largest = largest_bits(rows + first, size);
      if (largest >= 0x7f800000u) finite = false, largest = 0;
      *scales++ = layout.bits == 4 ? four_bits(rows + first, size, largest, layout.group,
                                               reinterpret_cast<uint8_t*>(codes) + first / 2)
                                   : eight_bits(rows + first, size, largest, reinterpret_cast<int8_t*>(codes) + first);
    }
  }
  return finite;
}

constexpr float least_rounded = 0x1p-100f;  // a row of smaller numbers is 0, for 127 / it might be infinite

at::Tensor rounded_inputs(const at::Tensor& x) {
  const at::Tensor largest = at::amax(at::abs(x), 1, /*keepdim=*/true);
  return at::where(largest < least_rounded, largest * 0, at::round(x * (127 / largest)) * (largest / 127));
}

QuantizedMatrix quantized(const at::Tensor& w, CodeLayout layout, at::ScalarType compute_type) {
  layout.in = w.size(1);
  const QuantizedMatrix matrix{at::empty({w.size(0), layout.code_bytes()}, layout.code_type()),
                               at::empty({w.size(0), layout.groups()}, at::kBFloat16), layout, compute_type};
  if (!quantize(w.const_data_ptr<float>(), w.size(0), layout, static_cast<std::byte*>(matrix.codes.mutable_data_ptr()),
                static_cast<uint16_t*>(matrix.scales.mutable_data_ptr())))
    throw std::invalid_argument("a matrix with infinities or NaNs has no codes");
  return matrix;
}

QuantizedMatrix quantized_rows(const at::Tensor& bytes, const CodeLayout& layout, at::ScalarType compute_type) {
  const int64_t codes = layout.code_bytes();
  at::Tensor scales = bytes.narrow(1, codes, bytes.size(1) - codes);
  const bool aligned = (reinterpret_cast<uintptr_t>(scales.const_data_ptr()) |
                        static_cast<uintptr_t>(scales.storage_offset()) | static_cast<uintptr_t>(bytes.size(1))) %
                           sizeof(uint16_t) ==
                       0;
  if (!aligned) scales = scales.clone(at::MemoryFormat::Contiguous);
  return {bytes.narrow(1, 0, codes).view(layout.code_type()), scales.view(at::kBFloat16), layout, compute_type};
}

at::Tensor dequantized(const QuantizedMatrix& matrix) {
  const CodeLayout& layout = matrix.layout;
  const int64_t rows = matrix.out(), groups = layout.groups();
  if (layout.bits == 4) {
    const at::Tensor bytes = matrix.codes.reshape({rows, groups, layout.group / 2});
    const at::Tensor numbers = at::cat({bytes.bitwise_and(15), bytes.bitwise_right_shift(4)}, 2).to(at::kFloat).sub_(8);
    return numbers.mul_(matrix.scales.to(at::kFloat).unsqueeze(2))
        .view({rows, groups * layout.group})
        .narrow(1, 0, layout.in);
  }
  const at::Tensor scales = matrix.scales.to(at::kFloat)
                                .unsqueeze(2)
                                .expand({rows, groups, layout.group})
                                .reshape({rows, groups * layout.group});
  return matrix.codes.to(at::kFloat).mul_(scales.narrow(1, 0, layout.in));
}

}  // namespace pm::ops
