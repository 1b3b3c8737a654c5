// SPDX-License-Identifier: Apache-2.0
// The flags of `generate` that are made from the table of generation parameters.
#pragma once
#include <CLI/CLI.hpp>

#include "worker/engine/sampling/parameters.h"

namespace pm::cli {

/// Adds a flag for each parameter, such as --top-p for top_p. Parsing sets the values; for one that is not allowed it
/// throws CLI::ValidationError that names the flag. `values` outlives the parsing.
void add_generation_flags(CLI::App&, engine::ParameterValues& values);

/// Returns the configuration of these flags, with the defaults of Hugging Face's generate.
engine::GenerationConfig generation_config(const engine::ParameterValues&);

}  // namespace pm::cli
