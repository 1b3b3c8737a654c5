// POST /generate and the query of GET /generate_text: Hugging Face's generation parameters, validated.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "worker/server/asked.h"
#include "worker/server/engine_requests.h"

namespace pm::server {

struct GenerateRequest {
  std::vector<Prompt> prompts;             ///< at least one
  bool single = false;                     ///< one prompt, not a list of one
  Asked asked;
  engine::Sampling sampling;
  engine::Search search;
  Length length;
  bool full_text = true;                   ///< texts begin with the prompt
  bool details = false, stream = false;
  bool return_token_ids = false;
};

/// `object`: inputs (or input_ids) and parameters side by side. Absent parameters are generation_config.json's, then Hugging Face's: greedy, one
/// beam, 20 new tokens, of the best 50 when sampling. `seed` is used where the request has none. Throws ApiError 400 that names the field, the
/// nearest name for one that does not exist, and what does not go together.
GenerateRequest parse_generate(const nlohmann::json& object, const Serving&, uint64_t seed);

/// A query as such an object: numbers, true, false and lists as JSON, the rest as text; repeated names become a list. max_tokens is taken for
/// max_new_tokens.
nlohmann::json query_object(std::string_view query);

}  // namespace pm::server
