// SPDX-License-Identifier: Apache-2.0
// Makes dense tensors out of the codes and scales of quantised checkpoints, as config.json's quantization_config says.
// Values are those of transformers' dequantized weights; the element type is config.json's dtype.
#pragma once
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "worker/checkpoint/quantized/code_matrix.h"

namespace pm::checkpoint {

using TensorTable = std::map<std::string, TensorInfo, std::less<>>;
using UnsupportedTable = std::map<std::string, UnsupportedTensor, std::less<>>;

/// Replaces, in both tables, the stored tensors of each quantised matrix by one dense tensor, and removes scales of
/// activations, which dense products do not need. Returns false, and changes nothing, for a checkpoint without a
/// quantization_config. Throws Error{ModelUnreadable} for methods and layouts that are not supported, and for matrices
/// that lack a part or whose parts do not fit each other.
bool assemble_quantized(const std::filesystem::path& folder, const nlohmann::json& config, TensorTable&,
                        UnsupportedTable&, const ReadStored&);

}  // namespace pm::checkpoint
