// SPDX-License-Identifier: Apache-2.0
// Manages the folder of downloaded models on a volume. Its layout is that of huggingface_hub's cache, so that either
// finds what the other has downloaded: models--ORG--NAME/blobs/CHECKSUM, snapshots/COMMIT/PATH -> ../../blobs/CHECKSUM,
// refs/REVISION.
#pragma once
#include <filesystem>
#include <string>

#include "worker/hub/listing.h"

namespace pm::hub {

class Cache {
 public:
  Cache(std::filesystem::path root, const std::string& id) : root_(std::move(root)), folder_(root_ / folder_name(id)) {}
  /// "models--ORG--NAME"
  static std::string folder_name(const std::string& id);

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path snapshot(const std::string& commit) const { return folder_ / "snapshots" / commit; }
  std::filesystem::path blob(const File& file) const { return folder_ / "blobs" / file.name(); }
  /// Returns the path of a partial download.
  std::filesystem::path part(const File& file) const { return folder_ / "blobs" / (file.name() + ".part"); }

  /// Returns true when the file is complete: as a blob, or in the snapshot itself on volumes without symbolic links.
  /// Files get their final name only after their checksum is verified, so only the size is checked.
  bool has(const File&, const std::string& commit) const;
  /// Returns the bytes of a file that are present, complete or partial.
  int64_t present(const File&, const std::string& commit) const;

  /// Makes the folders. Throws Error{VolumeNotWritable | InsufficientStorage}.
  void prepare(const std::string& commit) const;
  /// Links a complete file into the snapshot.
  void link(const File&, const std::string& commit) const;
  /// Records the commit of a branch or tag.
  void note(const std::string& revision, const std::string& commit) const;

 private:
  std::filesystem::path root_, folder_;
};

/// Throws Error{InsufficientStorage | VolumeNotWritable} for the errno of a failed write.
[[noreturn]] void refuse_write(const std::filesystem::path&, int error);
/// Returns the free bytes on the volume of a folder.
int64_t free_bytes(const std::filesystem::path& folder);

}  // namespace pm::hub
