// SPDX-License-Identifier: Apache-2.0
#include "worker/server/generation/generation_params.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "worker/engine/sampling/sampling_json.h"
#include "worker/server/http/api_error.h"

namespace pm::server {
namespace {

using nlohmann::json;

constexpr size_t max_stops = 16;

std::vector<std::string> parse_strings(const json& value, const std::string& field, size_t max_count) {
  const std::string allowed =
      "a string, or an array of at most " + std::to_string(max_count) + " strings, none of them empty";
  const json list = value.is_array() ? value : json::array({value});
  if (list.size() > max_count) throw bad_field(field, json_excerpt(value), allowed);
  std::vector<std::string> texts;
  for (const auto& text : list) {
    if (!text.is_string() || text.get_ref<const std::string&>().empty())
      throw bad_field(field, json_excerpt(text), allowed);
    texts.push_back(text);
  }
  return texts;
}

void read_bad_words(Fields& fields, GenerationParams& params) {
  if (const auto* words = fields.find("bad_words"))
    params.bad_words = parse_strings(*words, "bad_words", max_bad_words);
  const auto* ids = fields.find("bad_words_ids");
  if (!ids) return;
  if (!ids->is_array() || ids->size() > max_bad_words)
    throw bad_field("bad_words_ids", json_excerpt(*ids),
                    "an array of at most " + std::to_string(max_bad_words) + " arrays of token ids");
  for (const auto& word : *ids) {
    const std::string field = "bad_words_ids[" + std::to_string(params.bad_word_ids.size()) + "]";
    if (!word.is_array()) throw bad_field(field, json_excerpt(word), "an array of token ids");
    params.bad_word_ids.push_back(parse_token_ids(word, field));
  }
}

void add_bad_words(const GenerationParams& params, const Tokenizer* tokenizer, engine::SamplingParams& sampling) {
  if (!params.bad_word_ids.empty() || !params.bad_words.empty()) sampling.bad_words = params.bad_word_ids;
  if (params.bad_words.empty()) return;
  if (!tokenizer)
    throw ApiError(400, "no_tokenizer",
                   "bad_words are texts, but this model's folder has no tokenizer that is served; send bad_words_ids",
                   "bad_words");
  for (auto& ids : word_ids(params.bad_words, *tokenizer)) {
    if (std::find(sampling.bad_words.begin(), sampling.bad_words.end(), ids) == sampling.bad_words.end())
      sampling.bad_words.push_back(std::move(ids));
  }
}

/// Parses OpenAI's object of biases by token ids, which are its keys.
void read_logit_bias(Fields& fields, GenerationParams& params) {
  const auto* value = fields.find("logit_bias");
  if (!value) return;
  if (!value->is_object() || value->size() > max_logit_biases)
    throw bad_field("logit_bias", json_excerpt(*value),
                    "an object of at most " + std::to_string(max_logit_biases) +
                        " token ids with numbers from -100 to 100, for example {\"50256\": -100}");
  for (const auto& [key, bias] : value->items()) {
    int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0)
      throw bad_field("logit_bias", json_excerpt(json(key)), "keys that are token ids, integers from 0");
    if (!bias.is_number() || std::abs(bias.get<double>()) > max_logit_bias)
      throw bad_field("logit_bias[" + key + "]", json_excerpt(bias), "a number from -100 to 100");
    params.logit_bias.emplace_back(id, bias.get<double>());
  }
}

}  // namespace

std::vector<int32_t> parse_token_ids(const json& array, const std::string& field) {
  std::vector<int32_t> ids;
  ids.reserve(array.size());
  for (const auto& value : array) {
    if (!value.is_number_integer() || value < 0 || value > INT32_MAX)
      throw bad_field(field + "[" + std::to_string(ids.size()) + "]", json_excerpt(value),
                      "a token id, an integer from 0");
    ids.push_back(value.get<int32_t>());
  }
  if (ids.empty()) throw bad_field(field, "an array of 0", "at least one token id");
  return ids;
}

std::vector<Prompt> parse_prompts(const json& value, const std::string& field) {
  const std::string allowed = "a string, an array of strings, an array of token ids, or an array of such arrays";
  if (value.is_string()) return {value.get<std::string>()};
  if (!value.is_array() || value.empty()) throw bad_field(field, json_excerpt(value), allowed);
  if (value.front().is_number()) return {parse_token_ids(value, field)};
  if (value.size() > max_prompts)
    throw bad_field(field, json_excerpt(value), "at most " + std::to_string(max_prompts) + " prompts in one request");
  std::vector<Prompt> prompts;
  for (const auto& one : value) {
    const std::string name = field + "[" + std::to_string(prompts.size()) + "]";
    if (one.type() != value.front().type())
      throw bad_field(name, json_excerpt(one), "the same kind as " + field + "[0]");
    if (one.is_string())
      prompts.emplace_back(one.get<std::string>());
    else if (one.is_array())
      prompts.emplace_back(parse_token_ids(one, name));
    else
      throw bad_field(name, json_excerpt(one), allowed);
  }
  return prompts;
}

void read_model(Fields& fields, const ServedNames& names, GenerationParams& params) {
  fields.text("user");
  if (const auto name = fields.text("model")) params.adapter = names.adapter(*name);
}

void read_parameter(Fields& fields, const std::string& name, const engine::Parameter& parameter,
                    engine::Dialect dialect, GenerationParams& params) {
  const auto* value = fields.find(name);
  if (value && !engine::assign(params.values, parameter, dialect, *value))
    throw bad_field(name, json_excerpt(*value), parameter.allowed(dialect));
}

void read_group(Fields& fields, engine::ParameterGroup group, engine::Dialect dialect, GenerationParams& params) {
  for (const engine::Parameter& parameter : engine::generation_parameters()) {
    const char* name = parameter.name_in(dialect);
    if (parameter.group == group && name) read_parameter(fields, name, parameter, dialect, params);
  }
}

void read_common(Fields& fields, engine::Dialect dialect, GenerationParams& params) {
  read_group(fields, engine::ParameterGroup::Common, dialect, params);
  read_bad_words(fields, params);
  read_logit_bias(fields, params);
}

void read_stops(Fields& fields, const std::string& name, GenerationParams& params) {
  if (const auto* value = fields.find(name))
    for (auto& stop : parse_strings(*value, name, max_stops)) params.stop.push_back(std::move(stop));
}

std::vector<std::vector<int32_t>> word_ids(const std::vector<std::string>& words, const Tokenizer& tokenizer) {
  std::vector<std::vector<int32_t>> all;
  for (const auto& word : words) {
    for (const std::string& text : {word, " " + word}) {
      auto ids = tokenizer.encode(text, false);
      if (!ids.empty()) all.push_back(std::move(ids));
    }
  }
  return all;
}

engine::SamplingParams make_sampling(const GenerationParams& params, const engine::SamplingParams& defaults,
                                     uint64_t seed, const Tokenizer* tokenizer) {
  using engine::SamplingParams;
  const engine::ParameterValues& values = params.values;
  engine::GenerationConfig config{.sampling = defaults};
  SamplingParams& sampling = config.sampling;
  sampling.seed = seed;
  values.apply_to(config);
  add_bad_words(params, tokenizer, sampling);
  if (!params.logit_bias.empty()) sampling.logit_bias = params.logit_bias;
  const auto temperature = values.get(&SamplingParams::temperature);
  if (!values.has(&SamplingParams::do_sample)) {
    if (temperature)
      sampling.do_sample = *temperature > 0;
    else if (values.has(&SamplingParams::top_p) || values.has(&SamplingParams::top_k))
      sampling.do_sample = true;
  }
  if (temperature == 0) sampling.temperature = 1;
  return sampling;
}

}  // namespace pm::server
