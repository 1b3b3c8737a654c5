// SPDX-License-Identifier: Apache-2.0
// Reads the tensor table of a pytorch_model.bin: PyTorch's zip archive of a pickled state_dict and one record per
// storage.
#pragma once
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/random_access_file.h"

namespace pm::checkpoint {

/// Returns the same table as a safetensors header. Tensors that share a storage share offsets; a view that is not
/// row-major has strides. Refused, with what to do: formats of before PyTorch 1.6 (pickle stream, tar), TorchScript
/// archives, big-endian archives, views whose elements overlap, and whatever read_zip and read_state_dict refuse.
/// Throws Error{ModelUnreadable}.
Header read_torch_file(const RandomAccessFile& file);

}  // namespace pm::checkpoint
