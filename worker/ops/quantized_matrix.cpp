// SPDX-License-Identifier: Apache-2.0
// Quantises fp32 rows to INT8 groups and dequantises them.
#include "worker/ops/quantized_matrix.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstring>

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

}  // namespace

bool quantize(const float* rows, int64_t count, int64_t in, int64_t group, int8_t* numbers, uint16_t* scales) {
  constexpr float round = 0x1.8p23f;  // added and taken away: the nearest whole number, half to even
  bool finite = true;
  for (int64_t row = 0; row < count; ++row) {
    for (int64_t first = 0; first < in; first += group) {
      const float* w = rows + row * in + first;
      int8_t* to = numbers + row * in + first;
      const int64_t size = std::min(group, in - first);
      uint32_t largest =
          0;  // without the sign the order of bits is that of numbers, with infinities and NaNs above all
      for (int64_t i = 0; i < size; ++i) largest = std::max(largest, bits_of(w[i]) & 0x7fffffffu);
      finite = finite && largest < 0x7f800000u;
      const uint32_t bits = (bits_of(float_of(largest) / 127.f) + 0xffffu) & 0xffff0000u;
      *scales++ = static_cast<uint16_t>(bits >> 16);
      if (bits == 0 || largest >= 0x7f800000u) {
        std::fill_n(to, size, int8_t{0});
        continue;
      }
      const float scale = float_of(bits);
      for (int64_t i = 0; i < size; ++i)
        to[i] = static_cast<int8_t>(static_cast<int32_t>(w[i] / scale + round - round));
    }
  }
  return finite;
}

QuantizedMatrix quantized_rows(const at::Tensor& bytes, int64_t in, int64_t group, at::ScalarType compute_type) {
  at::Tensor scales = bytes.narrow(1, in, bytes.size(1) - in);
  const bool aligned = (reinterpret_cast<uintptr_t>(scales.const_data_ptr()) |
                        static_cast<uintptr_t>(scales.storage_offset()) | static_cast<uintptr_t>(bytes.size(1))) %
                           sizeof(uint16_t) ==
                       0;
  if (!aligned) scales = scales.clone(at::MemoryFormat::Contiguous);
  return {bytes.narrow(1, 0, in).view(at::kChar), scales.view(at::kBFloat16), group, compute_type};
}

at::Tensor dequantized(const QuantizedMatrix& matrix) {
  const int64_t rows = matrix.codes.size(0), in = matrix.codes.size(1), groups = matrix.scales.size(1);
  const at::Tensor scales = matrix.scales.to(at::kFloat)
                                .unsqueeze(2)
                                .expand({rows, groups, matrix.group})
                                .reshape({rows, groups * matrix.group});
  return matrix.codes.to(at::kFloat).mul_(scales.narrow(1, 0, in));
}

}  // namespace pm::ops
