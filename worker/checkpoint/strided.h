// SPDX-License-Identifier: Apache-2.0
// Reads tensors that are not row-major in their file (a transposed matrix or a slice in a .bin file).
#pragma once
#include <functional>
#include <span>

#include "worker/checkpoint/checkpoint.h"

namespace pm::checkpoint {

/// Fills `out` from `offset` of the tensor's file.
using ReadAt = std::function<void(int64_t offset, std::span<std::byte> out)>;

/// Implements Checkpoint::read for a tensor with strides: `strips` address the tensor as if it were row-major. Elements
/// are visited in file order and scattered into `out`, through a window of at most 4 MiB. Strips begin and end at whole
/// elements, else std::invalid_argument.
void read_strided(const TensorInfo&, std::span<const Strip> strips, std::span<std::byte> out, const ReadAt& read);

}  // namespace pm::checkpoint
