// SPDX-License-Identifier: Apache-2.0
// Parses the file list of a model on the hub at one commit and selects the files that a worker needs. It is pure: it
// does no I/O.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pm::hub {

/// One file at a commit.
struct File {
  std::string path;  ///< inside the repository, without . and ..
  int64_t size = 0;
  std::string sha256;  ///< of a file in large file storage, else ""
  std::string blob;    ///< SHA-1 of the git blob: of the file itself, or of its pointer in large file storage
  bool operator==(const File&) const = default;
  /// Returns the name of the contents: sha256, else blob, as in huggingface_hub's cache.
  const std::string& name() const { return sha256.empty() ? blob : sha256; }
};

struct Listing {
  std::string commit;  ///< 40 hexadecimal digits
  std::vector<File> files;
  const File* find(std::string_view path) const;
};

/// Parses the reply of /api/models/ID/revision/REVISION?blobs=true as untrusted input. Throws Error{SourceUnreachable}
/// for any other reply.
Listing listing_of(const std::string& json, const std::string& url);

/// Returns the files other than the model's weights: config, tokenizer, chat template, processor, and the modules of
/// sentence-transformers. At most 128 MiB each.
std::vector<File> small_files(const Listing&);

/// The files that hold the weights: model.safetensors, else the files of model.safetensors.index.json, else
/// pytorch_model.bin, else those of pytorch_model.bin.index.json, else the only model in GGUF (the order in which
/// checkpoints are opened). Only one form is used.
struct WeightFiles {
  std::optional<File> index;  ///< of checkpoints in several files
  std::vector<File> files;    ///< of checkpoints without an index
};
/// Throws Error{ModelUnreadable} when there are none, and for several models in GGUF.
WeightFiles weight_files(const Listing&, const std::string& id);
/// Returns the files that an index names. Throws Error{ModelUnreadable} for invalid JSON and for an index that
/// names missing files.
std::vector<File> indexed_files(const Listing&, const File& index, const std::string& json);

}  // namespace pm::hub
