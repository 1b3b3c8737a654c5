// A checkpoint that is looked at where it is, on the hub: config and headers come by ranged requests, no weights are kept.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "worker/base/error.h"
#include "worker/checkpoint/bytes.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/hub/client.h"

namespace pm::hub {

/// Opens the checkpoint of a revision for looking. A folder below `scratch` gets config.json, generation_config.json and the index, and an empty file for
/// every other one at the root of the repository; it is removed with this object. Headers of safetensors and the tables of .bin files (zip) are read by ranges. Where a
/// policy compares tensors with two names, their bytes are read too, until they differ. The checkpoint must not outlive this.
class RemoteCheckpoint {
 public:
  /// Throws Error{Model, SourceUnreachable | AuthFailed | RevisionNotFound | ModelUnreadable}.
  RemoteCheckpoint(Client&, const Repository&, const std::filesystem::path& scratch);
  ~RemoteCheckpoint();
  RemoteCheckpoint(const RemoteCheckpoint&) = delete;
  RemoteCheckpoint& operator=(const RemoteCheckpoint&) = delete;

  const checkpoint::Checkpoint& checkpoint() const { return *checkpoint_; }
  const std::string& commit() const { return listing_.commit; }
  /// An error about the checkpoint, in which the folder below `scratch` is called hf://ORG/NAME.
  Error in_its_words(const Error&) const;

 private:
  checkpoint::Bytes open(const std::string& name);

  Client& client_;
  const std::string id_;
  Listing listing_;
  std::filesystem::path folder_;
  std::optional<checkpoint::Checkpoint> checkpoint_;
};

}  // namespace pm::hub
