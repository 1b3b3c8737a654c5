// SPDX-License-Identifier: Apache-2.0
// Test device code that the GPU and the emulation share.
#include "tests/gpu/kernels/device.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstring>

namespace pm::cuda_test {

namespace {

std::vector<unsigned char> bytes_of(const std::vector<float>& values, Element type, size_t before) {
  const auto size = static_cast<size_t>(ops::cuda::element_bytes(type));
  std::vector<unsigned char> bytes((before + values.size()) * size, 0xFF);
  for (size_t i = 0; i < values.size(); ++i) {
    const __half half = __float2half_rn(values[i]);
    const __nv_bfloat16 bf16 = __float2bfloat16_rn(values[i]);
    const void* from = type == Element::F32   ? static_cast<const void*>(&values[i])
                       : type == Element::F16 ? static_cast<const void*>(&half)
                                              : &bf16;
    std::memcpy(bytes.data() + (before + i) * size, from, size);
  }
  return bytes;
}

float value_at(const unsigned char* bytes, Element type, size_t i) {
  float value;
  __half half;
  __nv_bfloat16 bf16;
  if (type == Element::F32) return std::memcpy(&value, bytes + 4 * i, 4), value;
  if (type == Element::F16) return std::memcpy(static_cast<void*>(&half), bytes + 2 * i, 2), __half2float(half);
  return std::memcpy(static_cast<void*>(&bf16), bytes + 2 * i, 2), __bfloat162float(bf16);
}

}  // namespace

float rounded(float value, Element type) { return value_at(bytes_of({value}, type, 0).data(), type, 0); }
const char* name(Element type) {
  return type == Element::F32 ? "fp32" : type == Element::F16 ? "fp16" : type == Element::BF16 ? "bf16" : "int8";
}

Floats::Floats(const std::vector<float>& values, Element type, size_t before)
    : type_(type),
      before_(before * static_cast<size_t>(ops::cuda::element_bytes(type))),
      values_(values),
      bytes_(bytes_of(values, type, before)) {
  for (float& value : values_) value = rounded(value, type);
}
Floats::Floats(size_t count, Element type)
    : type_(type), before_(0), values_(count), bytes_(count * static_cast<size_t>(ops::cuda::element_bytes(type))) {}

std::vector<float> Floats::read() const {
  const std::vector<unsigned char> bytes = bytes_.read();
  std::vector<float> values(values_.size());
  for (size_t i = 0; i < values.size(); ++i) values[i] = value_at(bytes.data() + before_, type_, i);
  return values;
}

}  // namespace pm::cuda_test
