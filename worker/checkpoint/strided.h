// Reading a tensor that lies in its file in another order than row-major (a transposed matrix or a slice in a .bin file).
#pragma once
#include <functional>
#include <span>

#include "worker/checkpoint/checkpoint.h"

namespace pm::checkpoint {

/// Reads `bytes` at `offset` of the tensor's file.
using ReadAt = std::function<void(int64_t offset, std::span<std::byte> out)>;

/// As Checkpoint::read for a tensor with strides: `strips` address the tensor as if it were row-major. Elements are visited in the order in
/// which they lie in the file and scattered into `out`, through one window of at most 4 MiB. Strips begin and end at whole elements,
/// else std::invalid_argument.
void read_strided(const TensorInfo&, std::span<const Strip> strips, std::span<std::byte> out, const ReadAt& read);

}  // namespace pm::checkpoint
