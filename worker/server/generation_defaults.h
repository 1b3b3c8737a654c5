// How a model wants to generate when the request does not say: its generation_config.json.
#pragma once
#include <filesystem>
#include <optional>

#include "worker/engine/request.h"

namespace pm::server {

/// What Hugging Face's generate takes from the file; every route samples by it, /generate and /generate_text search and end by it too.
struct GenerationDefaults {
  engine::Sampling sampling;                   ///< greedy, temperature 1 and nothing else where the file is silent
  bool top_k_given = false;                    ///< else Hugging Face's generate samples from the best 50
  engine::Search search;
  std::optional<int64_t> max_length, min_length;   ///< of prompt (or start token) and answer together
  std::optional<int64_t> max_new_tokens;
  std::optional<double> max_time;              ///< seconds
};

/// Of a checkpoint folder; one without the file has Hugging Face's defaults. Logs what the file asks for and no route serves. Throws
/// Error{Model, "ModelUnreadable"} for a file that is no JSON or has other types.
GenerationDefaults read_generation_defaults(const std::filesystem::path& folder);

}  // namespace pm::server
