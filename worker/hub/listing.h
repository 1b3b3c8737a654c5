// What a model on the hub is made of at one commit, and which of its files a worker needs. Pure.
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
  std::string path;                     ///< inside the repository, without . and ..
  int64_t size = 0;
  std::string sha256;                   ///< of a file in large file storage; ""
  std::string blob;                     ///< SHA-1 of git's blob: of the file itself, or of its pointer in large file storage
  bool operator==(const File&) const = default;
  /// What its bytes are called by: sha256, else blob. huggingface_hub's cache names files so too.
  const std::string& name() const { return sha256.empty() ? blob : sha256; }
};

struct Listing {
  std::string commit;                   ///< 40 hexadecimal digits
  std::vector<File> files;
  const File* find(std::string_view path) const;
};

/// Reads the answer to /api/models/ID/revision/REVISION?blobs=true, as hostile input. Throws Error{Model, "SourceUnreachable"} for what is no such answer.
Listing listing_of(const std::string& json, const std::string& url);

/// Files beside the weights: config, tokenizer, chat template, processor, pooling. At most 128 MiB each.
std::vector<File> small_files(const Listing&);

/// Which files hold the weights: model.safetensors, else the files of model.safetensors.index.json, else pytorch_model.bin, else those of
/// pytorch_model.bin.index.json (the order in which checkpoints are opened). Never two forms.
struct WeightFiles {
  std::optional<File> index;            ///< of several files
  std::vector<File> files;              ///< without an index
};
/// Throws Error{Model, "ModelUnreadable"} when there are none of them.
WeightFiles weight_files(const Listing&, const std::string& id);
/// The files that an index names. Throws Error{Model, "ModelUnreadable"} for no index and for one that names files that are not there.
std::vector<File> indexed_files(const Listing&, const File& index, const std::string& json);

}  // namespace pm::hub
