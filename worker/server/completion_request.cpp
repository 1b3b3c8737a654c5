// See completion_request.h.
#include "worker/server/completion_request.h"

#include "worker/server/api_error.h"
#include "worker/server/json_body.h"

namespace pm::server {
namespace {

using nlohmann::json;

constexpr size_t kPrompts = 128;
constexpr size_t kStops = 16;

std::vector<int32_t> ids_of(const json& array, const std::string& field) {
  std::vector<int32_t> ids;
  ids.reserve(array.size());
  for (const auto& value : array) {
    if (!value.is_number_integer() || value < 0 || value > INT32_MAX)
      throw bad_field(field + "[" + std::to_string(ids.size()) + "]", shown(value), "a token id, an integer from 0");
    ids.push_back(value.get<int32_t>());
  }
  if (ids.empty()) throw bad_field(field, "an array of 0", "at least one token id");
  return ids;
}

/// OpenAI's four forms: string, [string], [id], [[id]].
std::vector<Prompt> prompts_of(const json* value) {
  const std::string allowed = "a string, an array of strings, an array of token ids, or an array of such arrays";
  if (!value) throw ApiError(400, "missing_field", "prompt is missing; allowed: " + allowed, "prompt");
  if (value->is_string()) return {value->get<std::string>()};
  if (!value->is_array() || value->empty()) throw bad_field("prompt", shown(*value), allowed);
  if (value->front().is_number()) return {ids_of(*value, "prompt")};
  if (value->size() > kPrompts) throw bad_field("prompt", shown(*value), "at most " + std::to_string(kPrompts) + " prompts in one request");
  std::vector<Prompt> prompts;
  for (const auto& one : *value) {
    const std::string field = "prompt[" + std::to_string(prompts.size()) + "]";
    if (one.type() != value->front().type()) throw bad_field(field, shown(one), "the same kind as prompt[0]");
    if (one.is_string()) prompts.emplace_back(one.get<std::string>());
    else if (one.is_array()) prompts.emplace_back(ids_of(one, field));
    else throw bad_field(field, shown(one), allowed);
  }
  return prompts;
}

std::vector<std::string> stops_of(const json* value) {
  if (!value) return {};
  const std::string allowed = "a string, or an array of at most " + std::to_string(kStops) + " strings, none of them empty";
  const json list = value->is_array() ? *value : json::array({*value});
  if (list.size() > kStops) throw bad_field("stop", shown(*value), allowed);
  std::vector<std::string> stops;
  for (const auto& stop : list) {
    if (!stop.is_string() || stop.get_ref<const std::string&>().empty()) throw bad_field("stop", shown(stop), allowed);
    stops.push_back(stop);
  }
  return stops;
}

/// What OpenAI's API has and we do not serve: accepted at its neutral value, refused at any other.
void refuse_unserved(Fields& fields) {
  fields.only("n", 1);
  fields.only("best_of", 1);
  fields.only("echo", false);
  fields.only("logprobs", nullptr);
  fields.only("suffix", nullptr);
  fields.only("logit_bias", json::object());
  fields.text("user");   // says who asks; changes nothing
}

}  // namespace

CompletionRequest parse_completion(std::string_view body, const std::string& model) {
  const json object = parse_object(body);
  Fields fields(object);
  CompletionRequest request;
  const auto asked = fields.text("model");
  request.prompts = prompts_of(fields.find("prompt"));
  request.max_tokens = fields.integer("max_tokens", 1, INT64_MAX);
  request.temperature = fields.number("temperature", 0, 2);
  request.top_p = fields.number("top_p", 0, 1, true);
  request.top_k = fields.integer("top_k", -1, INT32_MAX);
  request.min_p = fields.number("min_p", 0, 1);
  request.presence_penalty = fields.number("presence_penalty", -2, 2);
  request.frequency_penalty = fields.number("frequency_penalty", -2, 2);
  request.repetition_penalty = fields.number("repetition_penalty", 0, 100, true);
  request.min_tokens = fields.integer("min_tokens", 0, INT32_MAX);
  if (const auto seed = fields.integer("seed", INT64_MIN, INT64_MAX)) request.seed = static_cast<uint64_t>(*seed);
  request.stop = stops_of(fields.find("stop"));
  request.stream = fields.boolean("stream").value_or(false);
  if (const auto* options = fields.find("stream_options")) {
    if (!options->is_object()) throw bad_field("stream_options", shown(*options), "an object with include_usage");
    if (!request.stream) throw ApiError(400, "invalid_value", "stream_options is given without stream: true; leave it out or stream", "stream_options");
    Fields inner(*options, "stream_options.");
    request.include_usage = inner.boolean("include_usage").value_or(false);
    inner.refuse_others();
  }
  request.ignore_eos = fields.boolean("ignore_eos").value_or(false);
  request.return_token_ids = fields.boolean("return_token_ids").value_or(false);
  refuse_unserved(fields);
  fields.refuse_others();
  if (asked && *asked != model)
    throw ApiError(404, "model_not_found", "model is " + shown(*asked) + "; this server has: " + json(model).dump(), "model");
  return request;
}

engine::Sampling sampling_of(const CompletionRequest& request, const engine::Sampling& defaults, uint64_t seed) {
  engine::Sampling sampling = defaults;
  sampling.seed = request.seed.value_or(seed);
  if (request.top_p) sampling.top_p = *request.top_p;
  if (request.min_p) sampling.min_p = *request.min_p;
  if (request.presence_penalty) sampling.presence_penalty = *request.presence_penalty;
  if (request.frequency_penalty) sampling.frequency_penalty = *request.frequency_penalty;
  if (request.repetition_penalty) sampling.repetition_penalty = *request.repetition_penalty;
  if (request.min_tokens) sampling.min_new_tokens = *request.min_tokens;
  if (request.top_k) sampling.top_k = std::max<int64_t>(*request.top_k, 0);   // -1 is vLLM's "off"
  if (request.temperature) {
    sampling.do_sample = *request.temperature > 0;
    sampling.temperature = sampling.do_sample ? *request.temperature : 1;
  } else if (request.top_p || request.top_k) {
    sampling.do_sample = true;
  }
  return sampling;
}

}  // namespace pm::server
