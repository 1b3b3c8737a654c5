// SPDX-License-Identifier: Apache-2.0
// The flags of `generate` that are made from the table of generation parameters.
#pragma once
#include <CLI/CLI.hpp>

#include "worker/engine/sampling/parameters.h"

namespace pm::cli {

/// Adds a flag for each parameter, such as --top-p for top_p. Parsing sets the values; for one that is not allowed it
/// throws CLI::ValidationError that names the flag. `values` outlives the parsing.
void add_generation_flags(CLI::App&, engine::ParameterValues& values);

/// Returns the configuration of these flags; what they leave out is that of `defaults`, by default of Hugging Face's
/// generate. A flag takes precedence over every default of the same purpose: --max-length over max_new_tokens,
/// --min-new-tokens over min_length.
engine::GenerationConfig generation_config(const engine::ParameterValues&,
                                           engine::GenerationConfig defaults = {
                                               .sampling = {.top_k = engine::default_top_k}});

}  // namespace pm::cli
