// SPDX-License-Identifier: Apache-2.0
// A checkpoint folder in Hugging Face format: config.json and the weights, one or several files of safetensors or of
// PyTorch (.bin); or a model in GGUF, which is presented as such a folder. Opening reads headers only.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "planner/dtype.h"
#include "worker/checkpoint/random_access_file.h"

namespace pm::checkpoint {

struct PackedMatrix;

struct TensorInfo {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  int file = 0;        ///< index into files()
  int64_t offset = 0;  ///< of the first byte in that file
  int64_t bytes = 0;   ///< element size x product of the shape
  /// Strides in elements of a tensor that is not row-major in its file (.bin only). Empty: row-major.
  std::vector<int64_t> strides;
  /// Decodes a tensor that is stored as codes and scales, or in blocks (quantized/packed_matrix.h); `dtype`, `shape`
  /// and `bytes` are then those of its dense elements, `file` and `offset` those of its codes. Null: the elements are
  /// stored.
  std::shared_ptr<const PackedMatrix> packed;
};

/// A tensor whose elements nothing computes with.
struct UnsupportedTensor {
  std::string type;  ///< as safetensors names it: F8_E4M3, U16, ...
  TensorInfo bytes;  ///< U8, of its shape where an element is a byte, else [bytes]
};

/// One strip of a strided read: `rows` rows of `row_bytes` each. The first is at `offset` in the row-major tensor, and
/// the rows are `stride` bytes apart.
struct Strip {
  int64_t offset = 0, rows = 1, row_bytes = 0, stride = 0;
};

/// An open checkpoint, immutable after open(); read() may be called from several threads.
class Checkpoint {
 public:
  /// Reads config.json and the tensor table of every file: model.safetensors, else model.safetensors.index.json, else
  /// pytorch_model.bin, else pytorch_model.bin.index.json (Hugging Face's order), else the only model in GGUF, from
  /// which config.json follows where there is none (gguf/gguf_model.h). The tensors of a quantised matrix are one dense
  /// tensor (quantized/formats.h). Other formats are refused with a message that names them. The embeddings of an index
  /// (passage_index.h) count as tensors. Throws Error{ModelUnreadable} that names file, tensor or key, what
  /// was found and what was expected; the rules for headers are those of the safetensors library.
  static Checkpoint open(const std::filesystem::path& folder);
  /// Opens a file of weights by its name; may throw Error{Model}.
  using Remote = std::function<RandomAccessFile(const std::string& file)>;
  /// Opens a checkpoint whose weights are not in the folder, which has an empty file for each: they are inspected
  /// remotely, without a copy. Only read() and equal() read them; the file that `remote` returns decides from how many
  /// threads.
  static Checkpoint open(const std::filesystem::path& folder, const Remote& remote);

  const nlohmann::json& config() const { return config_; }
  const std::filesystem::path& folder() const { return folder_; }
  const std::map<std::string, TensorInfo, std::less<>>& tensors() const { return tensors_; }
  const TensorInfo* find(std::string_view name) const;
  /// Returns the tensors whose element type is not supported. They are not in tensors(); they are an error only where
  /// the model needs one.
  const std::map<std::string, UnsupportedTensor, std::less<>>& unsupported() const { return unsupported_; }
  const std::vector<std::filesystem::path>& files() const { return files_; }

  /// Reads strips of a tensor back to back into `out` with positional reads, never by mmap. It reads no more than
  /// requested plus at most one page per row, in blocks of at most 4 MiB; for a tensor with strides up to its whole
  /// span in the file. Of a packed tensor it reads the codes and scales of these strips. Throws Error{Model} with
  /// file and errno text on a short read.
  void read(const TensorInfo&, std::span<const Strip>, std::span<std::byte> out) const;
  /// Returns whether two tensors have the same type, shape and bytes.
  bool equal(const TensorInfo&, const TensorInfo&) const;

 private:
  void open_index(const Remote&);
  void read_stored(const TensorInfo&, std::span<const Strip>, std::span<std::byte> out) const;
  std::filesystem::path folder_;
  nlohmann::json config_;
  std::vector<std::filesystem::path> files_;
  std::vector<RandomAccessFile> bytes_;  ///< one for each of files()
  std::map<std::string, TensorInfo, std::less<>> tensors_;
  std::map<std::string, UnsupportedTensor, std::less<>> unsupported_;
};

/// The tensor table of one file.
struct Header {
  std::map<std::string, TensorInfo, std::less<>> tensors;  ///< offsets count from the start of the file
  std::map<std::string, UnsupportedTensor, std::less<>> unsupported;
};

/// Reads the header of a safetensors file: its length, the limits, then parse_header. Throws Error{ModelUnreadable}.
Header read_safetensors(const RandomAccessFile& file);

/// Parses one safetensors header (the bytes after the 8-byte length); `file_size` is the size of the whole file, `file`
/// its name in errors. Rules of safetensors' tensor.rs: the header is a JSON object; spans sorted by begin are
/// contiguous from 0 to the end of the file; bytes == element size x product of the shape; `__metadata__` maps strings
/// to strings; no key occurs twice. Throws Error{ModelUnreadable}.
Header parse_header(std::string_view json, int64_t file_size, const std::string& file);

}  // namespace pm::checkpoint
