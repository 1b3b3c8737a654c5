// SPDX-License-Identifier: Apache-2.0
// Builds small GGUF files, in which a test can damage every part.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pm::checkpoint {

/// A GGUF file in memory.
struct GgufBytes {
  struct Tensor {
    std::string name;
    std::vector<uint64_t> dimensions;  ///< as in the file: that of a row first
    uint32_t type = 0;
    std::string data;
    uint64_t offset = UINT64_MAX;  ///< where it shall differ from the next multiple of 32
  };
  std::string magic = "GGUF";
  uint32_t version = 3;
  uint64_t tensor_count = UINT64_MAX, key_count = UINT64_MAX;  ///< where they shall differ
  std::string keys;                                            ///< encoded pairs
  uint64_t pairs = 0;
  std::vector<Tensor> tensors;

  GgufBytes& add(std::string_view key, std::string_view text);
  GgufBytes& add(std::string_view key, uint32_t value);
  GgufBytes& add(std::string_view key, float value);
  /// Adds a pair of any type, whose value is encoded.
  GgufBytes& add_encoded(std::string_view key, uint32_t type, const std::string& value);
  std::string bytes() const;
};

/// Returns a length of 8 bytes and the text.
std::string gguf_text(std::string_view text);

}  // namespace pm::checkpoint
