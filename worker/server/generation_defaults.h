// How a model wants to be sampled when the request does not say: its generation_config.json.
#pragma once
#include <filesystem>

#include "worker/engine/request.h"

namespace pm::server {

/// do_sample, temperature, top_k, top_p of generation_config.json in a checkpoint folder; what it lacks, or a folder without one, is
/// greedy with temperature 1, top_k and top_p off. Throws Error{Model, "ModelUnreadable"} for a file that is no JSON or has other types.
engine::Sampling read_default_sampling(const std::filesystem::path& folder);

}  // namespace pm::server
