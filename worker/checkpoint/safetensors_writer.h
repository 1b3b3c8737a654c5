// SPDX-License-Identifier: Apache-2.0
// Writes the weights of a checkpoint folder: one file of safetensors, or several with an index, without holding more of
// them in memory than a caller hands over at once.
#pragma once
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

namespace pm::checkpoint {

/// A tensor to be written.
struct WrittenTensor {
  std::string name, type;  ///< as safetensors names it: BF16
  std::vector<int64_t> shape;
  int64_t bytes = 0;
};

/// Writes files into a folder that has no weights yet: model.safetensors, or shards of at most `shard_bytes` (but for a
/// larger tensor) with model.safetensors.index.json. Throws Error{Usage} with errno's text where that fails.
class SafetensorsWriter {
 public:
  SafetensorsWriter(std::filesystem::path folder, std::vector<WrittenTensor>, int64_t shard_bytes);
  /// Writes the next bytes of the tensors, which come in the order in which they were given.
  void write(std::span<const std::byte>);
  /// Ends the last file and writes the index. Throws std::logic_error if bytes are missing.
  void finish();

 private:
  void begin_shard();
  void next_shard();
  std::string file_of(size_t shard) const;
  [[noreturn]] void fail(const std::filesystem::path& file) const;

  const std::filesystem::path folder_;
  const std::vector<WrittenTensor> tensors_;
  std::vector<size_t> first_;  ///< of the tensors of each shard
  size_t shard_ = 0;
  int64_t left_ = 0;  ///< bytes of the shard that are not written
  std::ofstream out_;
};

}  // namespace pm::checkpoint
