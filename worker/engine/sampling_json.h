// Sampling parameters under Hugging Face's names: generation_config.json, jobs, tests.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "worker/engine/request.h"

namespace pm::engine {

/// Takes the keys that are there and not null; others stay. Throws nlohmann::json::exception for a value of a wrong type.
void read_sampling(const nlohmann::json& object, Sampling&);
/// num_beams, num_return_sequences, length_penalty, early_stopping (true, false, "never").
void read_search(const nlohmann::json& object, Search&);

}  // namespace pm::engine
