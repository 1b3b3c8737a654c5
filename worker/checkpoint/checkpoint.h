// A checkpoint folder in Hugging Face form: config.json and the weights, one or several files of
// safetensors or of PyTorch (.bin). Opening reads headers only.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "planner/dtype.h"
#include "worker/checkpoint/bytes.h"

namespace pm::checkpoint {

struct TensorInfo {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  int file = 0;              ///< index into files()
  int64_t offset = 0;        ///< of the first byte in that file
  int64_t bytes = 0;         ///< element size x product of the shape
  /// Of a tensor that does not lie row-major in its file (.bin only): steps of each dimension in elements. Empty: row-major.
  std::vector<int64_t> strides;
};

/// One strip of a strided read: `rows` rows of `row_bytes` each, the first at `offset` in the row-major tensor, `stride` bytes apart.
struct Strip {
  int64_t offset = 0, rows = 1, row_bytes = 0, stride = 0;
};

/// Immutable after open(); read() may be called from several threads.
class Checkpoint {
 public:
  /// Reads config.json and the table of every file: model.safetensors, else model.safetensors.index.json, else pytorch_model.bin, else
  /// pytorch_model.bin.index.json (Hugging Face's order). Quantized weights and other formats are refused by name. Throws Error{Model, "ModelUnreadable"} that names file, tensor or key, what was
  /// found and what was expected (strict: safetensors' own rules, see reference/controller.md 5.4).
  static Checkpoint open(const std::filesystem::path& folder);
  /// Gives the bytes of a file of weights by its name; may throw Error{Model}.
  using Remote = std::function<Bytes(const std::string& file)>;
  /// As open, for weights that are not in the folder, which has an empty file for each: for looking at them where they are, without a copy. Nothing but read() and equal() reaches them;
  /// from how many threads is up to what `remote` gives.
  static Checkpoint open(const std::filesystem::path& folder, const Remote& remote);

  const nlohmann::json& config() const { return config_; }
  const std::filesystem::path& folder() const { return folder_; }
  const std::map<std::string, TensorInfo, std::less<>>& tensors() const { return tensors_; }
  const TensorInfo* find(std::string_view name) const;
  /// Tensors whose element type we do not serve (name -> F8_E4M3, U16, ...): not in tensors(), an error only where one is needed.
  const std::map<std::string, std::string, std::less<>>& unserved() const { return unserved_; }
  const std::vector<std::filesystem::path>& files() const { return files_; }

  /// Reads strips of a tensor back to back into `out` with positional reads. Never maps, and reads no more than what is asked plus
  /// at most one page per row, staged in blocks of at most 4 MiB (a tensor with strides: up to all of its file's span). Throws Error{Model} with file and errno text on a short read.
  void read(const TensorInfo&, std::span<const Strip>, std::span<std::byte> out) const;
  /// True when two tensors have the same type, shape and bytes.
  bool equal(const TensorInfo&, const TensorInfo&) const;

 private:
  std::filesystem::path folder_;
  nlohmann::json config_;
  std::vector<std::filesystem::path> files_;
  std::vector<Bytes> bytes_;             ///< of each file
  std::map<std::string, TensorInfo, std::less<>> tensors_;
  std::map<std::string, std::string, std::less<>> unserved_;
};

/// What one file's table describes.
struct Header {
  std::map<std::string, TensorInfo, std::less<>> tensors;         ///< offsets count from the start of the file
  std::map<std::string, std::string, std::less<>> unserved;       ///< name -> element type that we do not serve
};

/// The table of a safetensors file: the length, its limits, then parse_header. Throws Error{Model, "ModelUnreadable"}.
Header read_safetensors(const Bytes& file);

/// Parses one safetensors header (the bytes after the 8-byte length); `file_size` is the whole file's, `file` its name in errors.
/// Rules of safetensors' tensor.rs: a JSON object; spans sorted by begin lie back to back from 0 to the end of the file; bytes ==
/// element size x product of the shape; `__metadata__` maps strings to strings; no key twice. Throws Error{Model, "ModelUnreadable"}.
Header parse_header(std::string_view json, int64_t file_size, const std::string& file);

}  // namespace pm::checkpoint
