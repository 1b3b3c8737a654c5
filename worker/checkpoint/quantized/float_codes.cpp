// SPDX-License-Identifier: Apache-2.0
// Tables of the numbers of 4 and 8 bits.
#include "worker/checkpoint/quantized/float_codes.h"

#include <cmath>
#include <limits>

namespace pm::checkpoint {

namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

ByteValues make_e4m3() {
  ByteValues values{};
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    float size = exponent ? std::ldexp(static_cast<float>(8 + mantissa), exponent - 10)
                          : std::ldexp(static_cast<float>(mantissa), -9);
    if ((code & 0x7f) == 0x7f) size = nan;
    values[static_cast<size_t>(code)] = code & 0x80 ? -size : size;
  }
  return values;
}

ByteValues make_exponents(float last) {
  ByteValues values{};
  for (int code = 0; code < 255; ++code) values[static_cast<size_t>(code)] = std::ldexp(1.0f, code - 127);
  values[255] = last;
  return values;
}

ByteValues make_e2m1() {
  ByteValues values{};
  constexpr std::array<float, 8> sizes{0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (size_t code = 0; code < 8; ++code) values[code] = sizes[code], values[code + 8] = -sizes[code];
  return values;
}

ByteValues make_int8() {
  ByteValues values{};
  for (int code = 0; code < 256; ++code)
    values[static_cast<size_t>(code)] = static_cast<float>(static_cast<int8_t>(code));
  return values;
}

}  // namespace

const ByteValues& e4m3_values() {
  static const ByteValues values = make_e4m3();
  return values;
}

const ByteValues& e8m0_values() {
  static const ByteValues values = make_exponents(nan);
  return values;
}

const ByteValues& exponent_values() {
  static const ByteValues values = make_exponents(std::numeric_limits<float>::infinity());
  return values;
}

const ByteValues& e2m1_values() {
  static const ByteValues values = make_e2m1();
  return values;
}

const ByteValues& int8_values() {
  static const ByteValues values = make_int8();
  return values;
}

}  // namespace pm::checkpoint
