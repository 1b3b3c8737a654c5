// Strips of a row-major tensor, read with as few calls as is worth it.
#pragma once
#include <functional>
#include <span>

#include "worker/checkpoint/checkpoint.h"

namespace pm::checkpoint {

/// Fills `out` with bytes at `offset` of the tensor's file.
using ReadBytes = std::function<void(int64_t offset, std::span<std::byte> out)>;

/// As Checkpoint::read. Rows that lie at most `close_together` bytes apart are read together, through a block of at most 4 MiB. Throws std::out_of_range for strips
/// outside of the tensor.
void read_strips(const TensorInfo&, std::span<const Strip>, std::span<std::byte> out, int64_t close_together, const ReadBytes&);

}  // namespace pm::checkpoint
