// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/worker/checkpoint/gguf_bytes.h"

#include <bit>

#include "tests/unit/worker/checkpoint/archive.h"

namespace pm::checkpoint {

std::string gguf_text(std::string_view text) { return number(text.size(), 8) + std::string(text); }

GgufBytes& GgufBytes::add_encoded(std::string_view key, uint32_t type, const std::string& value) {
  keys += gguf_text(key) + number(type, 4) + value;
  ++pairs;
  return *this;
}

GgufBytes& GgufBytes::add(std::string_view key, std::string_view text) { return add_encoded(key, 8, gguf_text(text)); }
GgufBytes& GgufBytes::add(std::string_view key, uint32_t value) { return add_encoded(key, 4, number(value, 4)); }
GgufBytes& GgufBytes::add(std::string_view key, float value) {
  return add_encoded(key, 6, number(std::bit_cast<uint32_t>(value), 4));
}

std::string GgufBytes::bytes() const {
  std::string table, data;
  for (const Tensor& tensor : tensors) {
    data.resize((data.size() + 31) / 32 * 32);
    table += gguf_text(tensor.name) + number(tensor.dimensions.size(), 4);
    for (const uint64_t size : tensor.dimensions) table += number(size, 8);
    table += number(tensor.type, 4) + number(tensor.offset == UINT64_MAX ? data.size() : tensor.offset, 8);
    data += tensor.data;
  }
  std::string out = magic + number(version, 4);
  out += number(tensor_count == UINT64_MAX ? tensors.size() : tensor_count, 8);
  out += number(key_count == UINT64_MAX ? pairs : key_count, 8) + keys + table;
  out.resize((out.size() + 31) / 32 * 32);
  return out + data;
}

}  // namespace pm::checkpoint
