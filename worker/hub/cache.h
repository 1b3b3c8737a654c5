// The folder of downloaded models on a volume, laid out as huggingface_hub's cache, so that either finds what the other has downloaded:
// models--ORG--NAME/blobs/CHECKSUM, snapshots/COMMIT/PATH -> ../../blobs/CHECKSUM, refs/REVISION.
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
  /// What has come of a file so far.
  std::filesystem::path part(const File& file) const { return folder_ / "blobs" / (file.name() + ".part"); }

  /// The file is there whole: as a blob, or in the snapshot itself on volumes without symbolic links. Bytes get their name only once their checksum is right, so that the size is
  /// all that is looked at.
  bool has(const File&, const std::string& commit) const;
  /// Bytes of a file that are there, whole or in part.
  int64_t present(const File&, const std::string& commit) const;

  /// Makes the folders. Throws Error{Model, "VolumeNotWritable" | "InsufficientStorage"}.
  void prepare(const std::string& commit) const;
  /// Gives a whole file its path in the snapshot.
  void link(const File&, const std::string& commit) const;
  /// Notes what a branch or tag meant.
  void note(const std::string& revision, const std::string& commit) const;

 private:
  std::filesystem::path root_, folder_;
};

/// Throws Error{Model, "InsufficientStorage" | "VolumeNotWritable"} for what errno says of a file.
[[noreturn]] void refuse_write(const std::filesystem::path&, int error);
/// Bytes that the volume of a folder takes.
int64_t free_bytes(const std::filesystem::path& folder);
/// "1.5 GiB"
std::string size_text(int64_t bytes);

}  // namespace pm::hub
