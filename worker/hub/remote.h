// SPDX-License-Identifier: Apache-2.0
// Inspects a checkpoint on the hub without downloading it: config and tensor headers are read by ranged requests, and
// no weights are stored.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "worker/base/error.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/random_access_file.h"
#include "worker/hub/client.h"

namespace pm::hub {

/// Opens the checkpoint of a revision for inspection. A folder below `scratch` gets config.json, generation_config.json
/// and the index, and an empty file for every other file at the root of the repository; it is removed with this object.
/// Headers of safetensors and the tables of .bin files (zip) are read by ranges. Where a policy compares tensors with
/// two names, their bytes are read too, until they differ. The checkpoint must not outlive this object.
class RemoteCheckpoint {
 public:
  /// Throws Error{SourceUnreachable | AuthFailed | RevisionNotFound | ModelUnreadable}.
  RemoteCheckpoint(Client&, const Repository&, const std::filesystem::path& scratch);
  ~RemoteCheckpoint();
  RemoteCheckpoint(const RemoteCheckpoint&) = delete;
  RemoteCheckpoint& operator=(const RemoteCheckpoint&) = delete;

  const checkpoint::Checkpoint& checkpoint() const { return *checkpoint_; }
  const std::string& commit() const { return listing_.commit; }
  /// Returns the error with hf://ORG/NAME instead of the folder below `scratch`.
  Error with_hub_name(const Error&) const;

 private:
  checkpoint::RandomAccessFile open(const std::string& name);

  Client& client_;
  const std::string id_;
  Listing listing_;
  std::filesystem::path folder_;
  std::optional<checkpoint::Checkpoint> checkpoint_;
};

}  // namespace pm::hub
