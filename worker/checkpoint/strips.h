// SPDX-License-Identifier: Apache-2.0
// Reads strips of a row-major tensor with few calls.
#pragma once
#include <functional>
#include <span>

#include "worker/checkpoint/checkpoint.h"

namespace pm::checkpoint {

/// Fills `out` from `offset` of the tensor's file.
using ReadBytes = std::function<void(int64_t offset, std::span<std::byte> out)>;

/// Throws std::out_of_range unless all strips lie inside the tensor and their bytes are those of `out`.
void check_strips(const TensorInfo&, std::span<const Strip>, std::span<const std::byte> out);

/// Implements Checkpoint::read. Rows that are at most `max_gap` bytes apart are read together, through a block of at
/// most 4 MiB. Throws std::out_of_range for strips outside of the tensor.
void read_strips(const TensorInfo&, std::span<const Strip>, std::span<std::byte> out, int64_t max_gap,
                 const ReadBytes&);

}  // namespace pm::checkpoint
