// SPDX-License-Identifier: Apache-2.0
// Parses and validates Hugging Face's generation parameters: the body of POST /generate and the query of GET
// /generate_text.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "worker/server/generation/engine_requests.h"
#include "worker/server/generation/generation_params.h"

namespace pm::server {

struct GenerateRequest {
  std::vector<Prompt> prompts;  ///< at least one
  bool single = false;          ///< the request has one prompt and not a list
  GenerationParams params;
  engine::SamplingParams sampling;
  engine::SearchParams search;
  LengthLimits length;
  bool full_text = true;  ///< generated_text begins with the prompt
  bool details = false, stream = false;
  bool return_token_ids = false;
};

/// `object` holds inputs (or input_ids) and the parameters side by side, `body` is the text that it was read from.
/// Absent parameters have the values of generation_config.json, then Hugging Face's: greedy, one beam, 20 new tokens,
/// top_k 50 when sampling. `seed` is the seed of a request that has none. Throws ApiError 400 that names the field; for
/// an unknown field it suggests the nearest name.
GenerateRequest parse_generate(const nlohmann::json& object, std::string_view body, const ServerContext&,
                               uint64_t seed);

/// Returns a query string as such an object. Numbers, booleans and lists are parsed as JSON, other values are texts;
/// repeated names become a list. max_tokens is an alias of max_new_tokens.
nlohmann::json query_object(std::string_view query);

}  // namespace pm::server
