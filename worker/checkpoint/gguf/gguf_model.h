// SPDX-License-Identifier: Apache-2.0
// A model in GGUF as a checkpoint of transformers: config.json and the table of tensors.
#pragma once
#include <nlohmann/json.hpp>
#include <span>

#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/quantized/packed_matrix.h"

namespace pm::checkpoint {

struct GgufModel {
  nlohmann::json config;  ///< the folder's config.json, else the one that follows from the metadata
  std::map<std::string, TensorInfo, std::less<>> tensors;
};

/// Reads the headers of a model's files, in order. Blocks are dense tensors of config.json's dtype, or F32 where
/// `config` is null or states none. `read` reads small tensors whose values config.json needs. Throws
/// Error{ModelUnreadable} for files that do not fit each other or their table, and Error{UnknownArchitecture}.
GgufModel read_gguf_model(std::span<const RandomAccessFile> files, const nlohmann::json& config,
                          const ReadStored& read);

}  // namespace pm::checkpoint
