// SPDX-License-Identifier: Apache-2.0
// Detects checkpoints in formats that are not supported, and refuses each with a message that says how to convert it.
#pragma once
#include "worker/checkpoint/checkpoint.h"

namespace pm::checkpoint {

/// Throws Error{ModelUnreadable} for a folder whose weights have another format; does nothing for any other
/// folder.
void refuse_unsupported_format(const std::filesystem::path& folder);

/// Refuses a folder without safetensors and .bin weights: GGUF, TensorFlow, Flax, adapters, original checkpoints or no
/// weights at all. Always throws Error{ModelUnreadable}.
[[noreturn]] void refuse_missing_weights(const std::filesystem::path& folder);

/// Refuses tensors that only quantized checkpoints have (GPTQ, AWQ, bitsandbytes, compressed-tensors, FP8 with scales).
/// A config.json with quantization_config passes, because the policy refuses it with the name of the method. Throws
/// Error{ModelUnreadable}.
void refuse_quantized(const Checkpoint&);

}  // namespace pm::checkpoint
