// SPDX-License-Identifier: Apache-2.0
// The element types of GGUF files: how many values a block of each has, in how many bytes, and their decoding.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "planner/dtype.h"

namespace pm::checkpoint {

/// A type of ggml. Rows are stored in whole blocks.
struct BlockType {
  uint32_t id = 0;
  std::string_view name;            ///< as ggml writes it: F16, Q4_K
  int64_t elements = 1, bytes = 0;  ///< of a block; no bytes: the type is known by name only
  std::optional<DType> plain;       ///< the type of elements that are stored as they are
  /// Decodes `count` blocks to count x elements floats, which are those of ggml's dequantisation bit for bit: codes,
  /// scales and their product are exact in F32, so that only the minimum's subtraction rounds. Null for plain types.
  void (*decode)(const uint8_t* blocks, int64_t count, float* out) = nullptr;
};

/// Returns the type with this number, or null. A type without bytes is known by name only.
const BlockType* find_block_type(uint32_t id);
/// Returns the names of the types that are read: "F32, F16, ...".
std::string readable_block_types();

}  // namespace pm::checkpoint
