// SPDX-License-Identifier: Apache-2.0
// The index of passages of a model that retrieves: the folder index/ beside the weights, with the passages' embeddings
// in safetensors and their titles and texts as lines of JSON (docs/reference/passage-index.md).
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/random_access_file.h"

namespace pm::checkpoint {

/// The folder of the index inside of the model's folder.
inline constexpr std::string_view index_folder = "index";
/// The tensors of the index among those of the checkpoint: "index.embeddings.0" is that of the first file.
inline constexpr std::string_view index_prefix = "index.", embeddings_prefix = "index.embeddings.";

/// Returns the names of the files of `folder` that hold one table: STEM.EXTENSION, or the shards
/// STEM-00001-of-00003.EXTENSION to STEM-00003-of-00003.EXTENSION, in order; none where there is no such file. Throws
/// Error{ModelUnreadable} for both at once, for shards that are missing, and for shards of two counts.
std::vector<std::string> find_shards(const std::filesystem::path& folder, const std::string& stem,
                                     const std::string& extension);

/// Returns the table of embeddings [passages, width] of one file: its only tensor, "embeddings", of F32, F16 or BF16
/// with at least one row and column. Throws Error{ModelUnreadable}.
TensorInfo read_embeddings(const RandomAccessFile&);

struct Passage {
  std::string title, text;
  bool operator==(const Passage&) const = default;
};

/// Returns the passage of one line: a JSON object with the strings "title" and "text"; further keys are ignored.
/// `where` names the line in errors. Throws Error{ModelUnreadable}.
Passage parse_passage(std::string_view line, const std::string& where);

/// Titles and texts by number, in the order of the files. They stay on disk; 8 bytes for each are in memory.
/// Immutable; read() may be called from several threads.
class Passages {
 public:
  /// Opens passages.jsonl, or its shards, in the folder of an index. Every line is parsed, so that no later read meets
  /// a broken one. Throws Error{ModelUnreadable} with file and line.
  static Passages open(const std::filesystem::path& folder);
  /// Reads the lines of these files.
  explicit Passages(std::vector<RandomAccessFile> files);

  int64_t size() const { return count_; }
  /// Returns the passage with this number. Throws std::out_of_range; Error{ModelUnreadable} when the file has changed.
  Passage read(int64_t number) const;

 private:
  struct File {
    RandomAccessFile bytes;
    std::vector<int64_t> begins;  ///< of each line, and the end of the last one
  };
  std::vector<File> files_;
  int64_t count_ = 0;
};

/// Opens a file for positional reads; it stays open as long as the result exists. Throws Error{ModelUnreadable}.
RandomAccessFile open_file(const std::filesystem::path&);

}  // namespace pm::checkpoint
