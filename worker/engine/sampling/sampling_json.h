// SPDX-License-Identifier: Apache-2.0
// Reads generation parameters from JSON: requests, generation_config.json, jobs and tests.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "worker/engine/sampling/parameters.h"

namespace pm::engine {

/// Sets a parameter from JSON. Returns false, and changes nothing, for a value of another type or outside of the range.
bool assign(ParameterValues&, const Parameter&, Dialect, const nlohmann::json& value);

/// Reads the parameters under Hugging Face's names, bad_words_ids, suppress_tokens and begin_suppress_tokens; null
/// counts as absent, and other keys are ignored. So is a list of forced ids: the model reads it. Throws
/// std::invalid_argument that names a value which is not allowed, and nlohmann::json::exception for lists of ids of a
/// wrong type.
GenerationConfig read_generation_config(const nlohmann::json& object);

}  // namespace pm::engine
