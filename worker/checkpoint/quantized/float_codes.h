// SPDX-License-Identifier: Apache-2.0
// Numbers of 4, 8 and 16 bits that quantised checkpoints store, as floats; and the rounding of floats to 16 bits.
#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "planner/dtype.h"

namespace pm::checkpoint {

using ByteValues = std::array<float, 256>;

/// Returns the values of F8_E4M3 (OCP FP8, "fn": no infinities): 1 sign, 4 exponent and 3 mantissa bits, bias 7; 0x7f
/// and 0xff are NaN.
const ByteValues& e4m3_values();
/// Returns the values of F8_E8M0 (OCP MX scales): 2^(code - 127), 255 is NaN.
const ByteValues& e8m0_values();
/// Returns 2^(code - 127) for exponents that are stored as U8; 255 is 2^128, an infinity, for such scales have no NaN.
const ByteValues& exponent_values();

/// Returns the value of E2M1 (OCP FP4) of a code from 0 to 15: 0, 0.5, 1, 1.5, 2, 3, 4, 6, and their negatives from 8.
/// Exponent and mantissa are those of a float whose exponent counts from 126, except for 0 and 0.5.
inline float from_e2m1(uint8_t code) {
  const uint32_t size = code & 7, sign = (code & 8u) << 28;
  return std::bit_cast<float>(sign | (size < 2 ? -size & 0x3f000000u : (size << 22) + (126u << 23)));
}

/// Returns the value of F8_E4M3. Exponent and mantissa are those of a float whose exponent counts from 120; numbers
/// below 2^-6 have a leading 1 too many, which is subtracted.
inline float from_e4m3(uint8_t code) {
  const uint32_t size = code & 0x7f, sign = (code & 0x80u) << 24;
  const uint32_t first = size < 8 ? 121u << 23 : 120u << 23, surplus = size < 8 ? 0x3c800000u : 0;
  const float finite = std::bit_cast<float>((size << 20) + first) - std::bit_cast<float>(surplus);
  return std::bit_cast<float>(sign | (size == 0x7f ? 0x7fc00000u : std::bit_cast<uint32_t>(finite)));
}

inline float from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

inline float from_f16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16, rest = static_cast<uint32_t>(bits & 0x7fff) << 13;
  const uint32_t finite = std::bit_cast<uint32_t>(std::bit_cast<float>(rest) * 0x1p112f);
  return std::bit_cast<float>(sign | (rest >= 0x7c00u << 13 ? 0x70000000u | rest : finite));  // infinities and NaNs
}

/// Rounds to BF16, ties to even.
inline uint16_t to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), rounded = bits + 0x7fff + (bits >> 16 & 1);
  return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded >> 16);
}

/// Rounds to F16, ties to even. Numbers below 2^-14 are rounded by the sum with 0.5, whose last bit is worth 2^-24.
inline uint16_t to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
  const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(size) + 0.5f) - 0x3f000000;
  const uint32_t normal = (size + 0xfff + (size >> 13 & 1) - (112u << 23)) >> 13;
  const uint32_t finite = size < 0x38800000 ? small : normal;
  const uint32_t large = size > 0x7f800000 ? 0x7e00 : 0x7c00;
  return static_cast<uint16_t>(sign | (size >= 0x47800000 ? large : finite));
}

/// Writes `count` floats as F32, BF16 or F16.
void store_floats(const float* from, int64_t count, DType type, std::byte* out);

}  // namespace pm::checkpoint
