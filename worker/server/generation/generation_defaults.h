// SPDX-License-Identifier: Apache-2.0
// Reads a checkpoint's defaults for generation parameters from generation_config.json.
#pragma once
#include <filesystem>

#include "worker/engine/sampling/parameters.h"

namespace pm::server {

/// Values that Hugging Face's generate takes from the file. Every route uses the sampling values; /generate and
/// /generate_text use the search and length values too.
struct GenerationDefaults {
  engine::GenerationConfig config;  ///< without the file: greedy, temperature 1
  bool has_top_k = false;           ///< false: Hugging Face's default applies
};

/// Reads the file in a checkpoint folder; without it the values are Hugging Face's defaults. Logs a warning for each
/// parameter that is not supported. Throws Error{ModelUnreadable} for a file that is not valid JSON or has values that
/// are not allowed.
GenerationDefaults read_generation_defaults(const std::filesystem::path& folder);

}  // namespace pm::server
