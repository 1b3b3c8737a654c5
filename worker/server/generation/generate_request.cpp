// SPDX-License-Identifier: Apache-2.0
#include "worker/server/generation/generate_request.h"

#include <algorithm>

#include "worker/server/generation/generation_defaults.h"
#include "worker/server/http/api_error.h"
#include "worker/server/http/percent_encoding.h"
#include "worker/server/tasks/task_request.h"

namespace pm::server {
namespace {

using engine::Dialect;
using engine::GenerationConfig;
using engine::ParameterGroup;
using engine::SamplingParams;
using nlohmann::json;

void read_prompts(Fields& fields, const ServerContext& context, GenerateRequest& request) {
  const auto* inputs = fields.find("inputs");
  if (context.capabilities.captions_images()) {
    for (Array& image :
         parse_images(context, require_field(fields, "inputs", images_allowed), "inputs", request.single))
      request.prompts.emplace_back(Arrays{{"pixel_values", std::move(image)}});
    return;
  }
  const auto* ids = fields.find("input_ids");
  if (!inputs == !ids)
    throw ApiError(
        400, inputs ? "invalid_value" : "missing_field",
        std::string("one of inputs (texts) and input_ids (token ids) is required") + (inputs ? ", not both" : ""),
        "inputs");
  const std::string field = inputs ? "inputs" : "input_ids";
  const json& value = inputs ? *inputs : *ids;
  request.prompts = parse_prompts(value, field);
  if (std::holds_alternative<std::string>(request.prompts[0]) != (inputs != nullptr))
    throw bad_field(field, json_excerpt(value),
                    inputs ? "a text or an array of texts; token ids go to input_ids"
                           : "an array of token ids, or an array of such arrays; texts go to inputs");
  request.single = value.is_string() || (value.is_array() && value.front().is_number());
}

/// Chooses the limits of the answer's length from the request, then from the defaults.
void set_lengths(const GenerationConfig& defaults, GenerateRequest& request) {
  const engine::ParameterValues& values = request.params.values;
  LengthLimits& length = request.length;
  length.max_new_tokens = values.get(&GenerationConfig::max_new_tokens);
  length.min_length = values.get(&GenerationConfig::min_length);
  length.field = length.max_new_tokens ? "max_new_tokens" : "max_length";
  if (!length.max_new_tokens) length.max_length = values.get(&GenerationConfig::max_length);
  if (defaults.max_new_tokens || !defaults.max_length)
    length.default_max_new_tokens = defaults.max_new_tokens.value_or(engine::default_new_tokens);
  else
    length.default_max_length = defaults.max_length;
  if (!values.has(&SamplingParams::min_new_tokens) && !length.min_length) length.min_length = defaults.min_length;
}

void read_end_tokens(Fields& fields, GenerationParams& params) {
  const auto* value = fields.find("eos_token_id");
  if (!value) return;
  const auto ids = parse_token_ids(value->is_array() ? *value : json::array({*value}), "eos_token_id");
  params.eos.emplace(ids.begin(), ids.end());
}

/// Reads fields of other servers that have no effect here, and those that have one supported value.
void read_unused_fields(Fields& fields) {
  fields.boolean("use_cache");
  fields.only("best_of", 1);
  fields.only("decoder_input_details", false);
  fields.only("watermark", false);
  for (const char* name : {"top_n_tokens", "truncate", "adapter_id"}) fields.only(name, nullptr);
}

void refuse(const std::string& field, const std::string& message) {
  throw ApiError(400, "invalid_value", message, field);
}

void check_combination(const GenerateRequest& request) {
  const engine::SearchParams& search = request.search;
  const std::string beams = "num_beams is " + std::to_string(search.num_beams),
                    returned = "num_return_sequences is " + std::to_string(search.num_return_sequences);
  if (search.num_beams > 1) {
    if (search.num_return_sequences > search.num_beams)
      refuse("num_return_sequences",
             returned + " and " + beams + "; beam search returns at most as many sequences as it has beams");
    if (request.stream)
      refuse("stream",
             "stream is true and " + beams +
                 ": beam search cannot stream, since the best beam is known only at the end; leave stream out, or send "
                 "num_beams 1");
    if (!request.params.stop.empty()) refuse("stop", "stop is set and " + beams + ": stop strings need num_beams 1");
  } else if (search.num_return_sequences > 1 && !request.sampling.do_sample) {
    refuse("num_return_sequences", returned + " without do_sample or num_beams: all sequences would be the same");
  }
}

json parse_query_value(const std::string& text) {
  if (text == "True") return true;  // Python's spelling
  if (text == "False") return false;
  const json value = json::parse(text, nullptr, false);
  return value.is_number() || value.is_boolean() || value.is_array() ? value : json(text);
}

}  // namespace

GenerateRequest parse_generate(const json& object, std::string_view body, const ServerContext& context, uint64_t seed) {
  Fields fields(object);
  GenerateRequest request;
  GenerationParams& params = request.params;
  read_prompts(fields, context, request);
  read_model(fields, context.names, params);
  read_common(fields, Dialect::HuggingFace, params);
  read_group(fields, ParameterGroup::Search, Dialect::HuggingFace, params);
  fields.only("num_beam_groups", 1);
  fields.only("diversity_penalty", 0);
  read_group(fields, ParameterGroup::Length, Dialect::HuggingFace, params);
  read_end_tokens(fields, params);
  for (const char* name : {"stop", "stop_strings"}) read_stops(fields, name, params);
  read_group(fields, ParameterGroup::Mode, Dialect::HuggingFace, params);
  const auto full = fields.boolean("return_full_text");
  if (full.value_or(false) && is_encoder_decoder(context))
    throw bad_field("return_full_text", "true",
                    "false or null: an encoder-decoder's answer does not continue the prompt");
  request.full_text = full.value_or(true) && !is_encoder_decoder(context);
  request.details = fields.boolean("details").value_or(false);
  request.stream = fields.boolean("stream").value_or(false);
  request.return_token_ids = fields.boolean("return_token_ids").value_or(false);
  params.constraint = read_generate_constraint(fields, body);
  read_unused_fields(fields);
  fields.find("parameters");  // parse_route_body has merged them
  fields.refuse_others();
  const GenerationDefaults& defaults = context.defaults;
  set_lengths(defaults.config, request);
  if (!params.values.has(&SamplingParams::do_sample))  // a temperature alone does not sample, as in transformers
    params.values.set(&SamplingParams::do_sample, defaults.config.sampling.do_sample);
  if (!params.values.has(&SamplingParams::top_k) && !defaults.has_top_k)
    params.values.set(&SamplingParams::top_k, engine::default_top_k);
  request.sampling = make_sampling(params, defaults.config.sampling, seed, context.tokenizer);
  GenerationConfig config = defaults.config;
  params.values.apply_to(config);
  request.search = config.search;
  check_combination(request);
  return request;
}

json query_object(std::string_view query) {
  static const std::vector<std::string> texts{"stop", "stop_strings", "bad_words", "model", "user"};
  json object = json::object();
  for (const auto& [key, text] : parse_query(query)) {
    const std::string name = key == "max_tokens" ? "max_new_tokens" : key;
    json value = std::find(texts.begin(), texts.end(), name) != texts.end() ? json(text) : parse_query_value(text);
    json& entry = object[name];
    if (entry.is_null())
      entry = std::move(value);
    else if (entry.is_array())
      entry.push_back(std::move(value));
    else
      entry = json::array({entry, std::move(value)});
  }
  return object;
}

}  // namespace pm::server
