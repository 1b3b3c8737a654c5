// SPDX-License-Identifier: Apache-2.0
// Direct I/O: reads that bypass the page cache, for weights that are read again and again and would evict everything
// else.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "worker/checkpoint/checkpoint.h"

namespace pm::checkpoint {

/// The files of a checkpoint, opened again with O_DIRECT where their file system supports it. They may be read from
/// several threads.
class DirectFiles {
 public:
  /// `checkpoint` outlives it.
  explicit DirectFiles(const Checkpoint& checkpoint);
  /// Reads as Checkpoint::read does, through an aligned block of 4 MiB for each reading thread; through the page cache
  /// for files without O_DIRECT.
  void read(const TensorInfo&, std::span<const Strip>, std::span<std::byte> out) const;
  /// Returns why a file cannot be read with O_DIRECT; empty when all can.
  const std::string& refusal() const { return refusal_; }

 private:
  const Checkpoint& checkpoint_;
  std::vector<std::shared_ptr<const int>> descriptors_;  ///< nullptr: no O_DIRECT
  std::string refusal_;
};

}  // namespace pm::checkpoint
