// Reading past the page cache: for bytes that come by again and again and would push all else out of memory.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "worker/checkpoint/checkpoint.h"

namespace pm::checkpoint {

/// The files of a checkpoint, opened once more with O_DIRECT, where their file system has it. May be read from several threads.
class DirectFiles {
 public:
  /// `checkpoint` outlives it.
  explicit DirectFiles(const Checkpoint& checkpoint);
  /// As Checkpoint::read, through an aligned block of 4 MiB of each thread that reads; through the page cache for files that refuse.
  void read(const TensorInfo&, std::span<const Strip>, std::span<std::byte> out) const;
  /// Why a file refuses; empty when none does.
  const std::string& refusal() const { return refusal_; }

 private:
  const Checkpoint& checkpoint_;
  std::vector<std::shared_ptr<const int>> descriptors_;   ///< nullptr: refuses
  std::string refusal_;
};

}  // namespace pm::checkpoint
