// SPDX-License-Identifier: Apache-2.0
// Tables of the numbers of 8 bits, and the types of dense elements.
#include "worker/checkpoint/quantized/float_codes.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "worker/base/widest.h"

namespace pm::checkpoint {

namespace {

ByteValues make_e4m3() {
  ByteValues values{};
  for (size_t code = 0; code < values.size(); ++code) values[code] = from_e4m3(static_cast<uint8_t>(code));
  return values;
}

ByteValues make_exponents(float last) {
  ByteValues values{};
  for (int code = 0; code < 255; ++code) values[static_cast<size_t>(code)] = std::ldexp(1.0f, code - 127);
  values[255] = last;
  return values;
}

}  // namespace

const ByteValues& e4m3_values() {
  static const ByteValues values = make_e4m3();
  return values;
}

const ByteValues& e8m0_values() {
  static const ByteValues values = make_exponents(std::numeric_limits<float>::quiet_NaN());
  return values;
}

const ByteValues& exponent_values() {
  static const ByteValues values = make_exponents(std::numeric_limits<float>::infinity());
  return values;
}

PM_WIDEST void store_floats(const float* from, int64_t count, DType type, std::byte* out) {
  auto* to = reinterpret_cast<uint16_t*>(out);
  if (type == DType::F32)
    std::memcpy(out, from, static_cast<size_t>(count) * sizeof(float));
  else if (type == DType::BF16)
    for (int64_t i = 0; i < count; ++i) to[i] = to_bf16(from[i]);
  else
    for (int64_t i = 0; i < count; ++i) to[i] = to_f16(from[i]);
}

}  // namespace pm::checkpoint
