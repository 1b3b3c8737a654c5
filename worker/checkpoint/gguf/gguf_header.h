// SPDX-License-Identifier: Apache-2.0
// The header of a GGUF file: metadata and the table of its tensors. Files are untrusted: every count, length and offset
// is checked against the file before it is used.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "worker/checkpoint/gguf/block_types.h"
#include "worker/checkpoint/random_access_file.h"

namespace pm::checkpoint {

struct GgufTensor {
  std::string name;
  const BlockType* type = nullptr;  ///< one that is read
  std::vector<int64_t> shape;       ///< row-major, which is ggml's order of dimensions reversed; 1 to 4 sizes from 1
  int64_t offset = 0;               ///< of the first byte in the file
  int64_t bytes = 0;
};

struct GgufHeader {
  nlohmann::json metadata;  ///< an object: numbers, booleans, strings, and lists of them
  std::vector<GgufTensor> tensors;
};

/// Which lists of the metadata are read: those of a vocabulary have some 10^5 strings, which only a tokenizer needs.
enum class GgufLists : uint8_t { All, AllButTokenizer };

/// Reads the header of a GGUF file of version 2 or 3, little-endian, as ggml describes it. Throws
/// Error{ModelUnreadable} with the file's name: for other versions and big-endian files, for types that are not read,
/// with the tensor's name, and for everything that does not fit the file: tensors lie apart, aligned and inside it.
GgufHeader read_gguf_header(const RandomAccessFile&, GgufLists);

}  // namespace pm::checkpoint
