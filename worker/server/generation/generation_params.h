// SPDX-License-Identifier: Apache-2.0
// Parses the sampling and length parameters of a request for all routes that generate.
#pragma once
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "worker/engine/sampling/parameters.h"
#include "worker/server/http/json_body.h"
#include "worker/server/replies/constraint.h"
#include "worker/server/serving/served_names.h"
#include "worker/tokenizer/tokenizer.h"

namespace pm::server {

/// A text, token ids, or what the model's encoder reads of an image or of audio.
using Prompt = std::variant<std::string, std::vector<int32_t>, Arrays>;

constexpr size_t max_prompts = 128;   ///< in one request
constexpr int64_t max_logprobs = 20;  ///< alternatives per token
constexpr size_t max_bad_words = 1024;
constexpr size_t max_logit_biases = 1024;
constexpr double max_logit_bias = 100;

/// The generation parameters of a request; absent values are the model's defaults.
struct GenerationParams {
  engine::ParameterValues values;
  std::vector<std::string> stop, bad_words;
  std::vector<std::vector<int32_t>> bad_word_ids;
  std::vector<std::pair<int32_t, double>> logit_bias;
  std::optional<std::vector<int64_t>> eos;  ///< ids of end tokens
  std::optional<ConstraintSpec> constraint;
  int64_t prompt_logprobs = -1;  ///< alternatives of each token of the prompt; -1: no log-probabilities of it
  std::shared_ptr<const engine::Adapter> adapter;  ///< that "model" names; nullptr: the base model
};

/// Reads "model", which must be a served name when present, and "user", which has no effect. Throws ApiError 404 for
/// another model's name.
void read_model(Fields&, const ServedNames&, GenerationParams&);

/// Reads a row of the table from the field `name`. All readers throw ApiError 400 that names the field.
void read_parameter(Fields&, const std::string& name, const engine::Parameter&, engine::Dialect, GenerationParams&);
/// Reads the parameters of a group that the dialect has.
void read_group(Fields&, engine::ParameterGroup, engine::Dialect, GenerationParams&);
/// Reads the fields that have the same name and meaning on all routes: the group Common, bad_words,
/// bad_words_ids and logit_bias.
void read_common(Fields&, engine::Dialect, GenerationParams&);
/// Appends the stop strings of the field `name`: one string or several, none of them empty.
void read_stops(Fields&, const std::string& name, GenerationParams&);

/// Parses OpenAI's four forms of prompts: string, [string], [id], [[id]].
std::vector<Prompt> parse_prompts(const nlohmann::json& value, const std::string& field);
/// Parses an array of at least one token id.
std::vector<int32_t> parse_token_ids(const nlohmann::json& array, const std::string& field);

/// Returns the token ids of words, each as a word of its own and as the continuation of a word.
std::vector<std::vector<int32_t>> word_ids(const std::vector<std::string>& words, const Tokenizer&);

/// Merges the parameters of a request into the model's defaults. Without do_sample the rule is vLLM's: temperature 0 is
/// greedy; a positive temperature, top_p or top_k samples; otherwise the model's default holds (OpenAI's default
/// temperature of 1 does not). `seed` is the seed of a request that has none. The texts in bad_words are banned by
/// their word_ids(), which needs the tokenizer.
engine::SamplingParams make_sampling(const GenerationParams&, const engine::SamplingParams& defaults, uint64_t seed,
                                     const Tokenizer*);

}  // namespace pm::server
