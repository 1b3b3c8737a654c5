// What a checkpoint folder may hold instead of weights that are served, each refused by name with what to do.
#pragma once
#include "worker/checkpoint/checkpoint.h"

namespace pm::checkpoint {

/// Throws Error{Model, "ModelUnreadable"} for a folder that has weights of another form; does nothing for any other.
void refuse_foreign(const std::filesystem::path& folder);

/// A folder without safetensors and .bin weights: GGUF, TensorFlow, Flax, adapters, original checkpoints or nothing. Always throws
/// Error{Model, "ModelUnreadable"}.
[[noreturn]] void refuse_other_formats(const std::filesystem::path& folder);

/// Refuses tensors that only quantized checkpoints have (GPTQ, AWQ, bitsandbytes, compressed-tensors, FP8 with scales). A config.json with
/// quantization_config passes: the policy refuses it with the method's name. Throws Error{Model, "ModelUnreadable"}.
void refuse_quantized(const Checkpoint&);

}  // namespace pm::checkpoint
