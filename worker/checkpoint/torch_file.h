// The table of a pytorch_model.bin: PyTorch's zip archive of a pickled state_dict and one record per storage.
#pragma once
#include "worker/checkpoint/bytes.h"
#include "worker/checkpoint/checkpoint.h"

namespace pm::checkpoint {

/// The same table that a safetensors header gives; tensors that share a storage share offsets, a view that is not row-major carries its
/// strides. Refused with what to do: the forms of before PyTorch 1.6 (pickle stream, tar), TorchScript archives, big-endian ones, views
/// whose elements lie over each other, and whatever read_zip and read_state_dict refuse. Throws Error{Model, "ModelUnreadable"}.
Header read_torch_file(const Bytes& file);

}  // namespace pm::checkpoint
