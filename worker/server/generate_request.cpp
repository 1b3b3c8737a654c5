// See generate_request.h.
#include "worker/server/generate_request.h"

#include <algorithm>

#include "worker/server/api_error.h"
#include "worker/server/percent.h"

namespace pm::server {
namespace {

using nlohmann::json;

constexpr int64_t kBeams = 256;
constexpr int64_t kNewTokens = 20, kTopK = 50;   // transformers' defaults

void read_prompts(Fields& fields, GenerateRequest& request) {
  const auto* inputs = fields.find("inputs");
  const auto* ids = fields.find("input_ids");
  if (!inputs == !ids) throw ApiError(400, inputs ? "invalid_value" : "missing_field", std::string("one of inputs (texts) and input_ids (token ids) is needed") + (inputs ? ", not both" : ""), "inputs");
  const std::string field = inputs ? "inputs" : "input_ids";
  const json& value = inputs ? *inputs : *ids;
  request.prompts = prompts_of(value, field);
  if (std::holds_alternative<std::string>(request.prompts[0]) != (inputs != nullptr))
    throw bad_field(field, shown(value), inputs ? "a text or an array of texts; token ids go to input_ids" : "an array of token ids, or an array of such arrays; texts go to inputs");
  request.single = value.is_string() || (value.is_array() && value.front().is_number());
}

void read_search(Fields& fields, const Serving& serving, GenerateRequest& request) {
  engine::Search& search = request.search;
  search = serving.defaults.search;
  search.num_beams = fields.integer("num_beams", 1, kBeams).value_or(search.num_beams);
  search.num_return_sequences = fields.integer("num_return_sequences", 1, kChoices).value_or(search.num_return_sequences);
  search.length_penalty = fields.number("length_penalty", -100, 100).value_or(search.length_penalty);
  if (const auto* early = fields.find("early_stopping")) {
    if (*early != "never" && !early->is_boolean()) throw bad_field("early_stopping", shown(*early), "true, false or \"never\"");
    search.early_stopping = *early == "never" ? engine::EarlyStopping::Never : early->get<bool>() ? engine::EarlyStopping::Yes : engine::EarlyStopping::No;
  }
  fields.only("num_beam_groups", 1);
  fields.only("diversity_penalty", 0);
}

void read_lengths(Fields& fields, const GenerationDefaults& defaults, GenerateRequest& request) {
  Length& length = request.length;
  length.new_tokens = fields.integer("max_new_tokens", 1, INT64_MAX);
  const auto in_all = fields.integer("max_length", 1, INT64_MAX);
  request.asked.min_new_tokens = fields.integer("min_new_tokens", 0, INT32_MAX);
  request.asked.forced_bos = fields.integer("forced_bos_token_id", 0, INT32_MAX);
  request.asked.forced_eos = fields.integer("forced_eos_token_id", 0, INT32_MAX);
  length.least_in_all = fields.integer("min_length", 0, INT32_MAX);
  length.field = length.new_tokens ? "max_new_tokens" : "max_length";
  if (!length.new_tokens) length.in_all = in_all;                     // as in transformers the number of new tokens wins
  if (defaults.max_new_tokens || !defaults.max_length) length.otherwise = defaults.max_new_tokens.value_or(kNewTokens);
  else length.otherwise_in_all = defaults.max_length;
  if (!request.asked.min_new_tokens && !length.least_in_all) length.least_in_all = defaults.min_length;
}

void read_end_tokens(Fields& fields, Asked& asked) {
  const auto* value = fields.find("eos_token_id");
  if (!value) return;
  const auto ids = ids_of(value->is_array() ? *value : json::array({*value}), "eos_token_id");
  asked.eos.emplace(ids.begin(), ids.end());
}

/// What belongs to other servers' dialects, or changes nothing here.
void read_neutral(Fields& fields) {
  fields.boolean("use_cache");
  fields.only("best_of", 1);
  fields.only("decoder_input_details", false);
  fields.only("watermark", false);
  for (const char* name : {"top_n_tokens", "truncate", "grammar", "adapter_id"}) fields.only(name, nullptr);
}

void refuse(const std::string& field, const std::string& message) { throw ApiError(400, "invalid_value", message, field); }

void check_together(const GenerateRequest& request) {
  const engine::Search& search = request.search;
  const std::string beams = "num_beams is " + std::to_string(search.num_beams), given = "num_return_sequences is " + std::to_string(search.num_return_sequences);
  if (search.num_beams > 1) {
    if (search.num_return_sequences > search.num_beams) refuse("num_return_sequences", given + " and " + beams + "; a search gives at most as many as it has beams");
    if (request.stream) refuse("stream", "stream is true and " + beams + ": which beam wins shows at the end only; leave stream out, or send num_beams 1");
    if (!request.asked.stop.empty()) refuse("stop", "stop is given and " + beams + ": texts that end an answer are served with one beam");
  } else if (search.num_return_sequences > 1 && !request.sampling.do_sample) {
    refuse("num_return_sequences", given + " without do_sample or num_beams: all would be the same");
  }
}

json value_of(const std::string& text) {
  if (text == "True") return true;   // as Python spells them
  if (text == "False") return false;
  const json value = json::parse(text, nullptr, false);
  return value.is_number() || value.is_boolean() || value.is_array() ? value : json(text);
}

}  // namespace

GenerateRequest parse_generate(const json& object, const Serving& serving, uint64_t seed) {
  Fields fields(object);
  GenerateRequest request;
  Asked& asked = request.asked;
  read_prompts(fields, request);
  read_model(fields, serving.model);
  read_common(fields, asked);
  read_search(fields, serving, request);
  read_lengths(fields, serving.defaults, request);
  read_end_tokens(fields, asked);
  for (const char* name : {"stop", "stop_strings"}) read_stops(fields, name, asked);
  asked.do_sample = fields.boolean("do_sample").value_or(serving.defaults.sampling.do_sample);
  asked.temperature = fields.number("temperature", 0, 1000, true);
  if (!asked.top_k && !serving.defaults.top_k_given) asked.top_k = kTopK;
  const auto full = fields.boolean("return_full_text");
  if (full.value_or(false) && reads_source(serving)) throw bad_field("return_full_text", "true", "false or null: an encoder-decoder's answer does not continue the prompt");
  request.full_text = full.value_or(true) && !reads_source(serving);
  request.details = fields.boolean("details").value_or(false);
  request.stream = fields.boolean("stream").value_or(false);
  request.return_token_ids = fields.boolean("return_token_ids").value_or(false);
  read_neutral(fields);
  fields.find("parameters");   // laid over the rest already
  fields.refuse_others();
  request.sampling = sampling_of(asked, serving.defaults.sampling, seed, serving.tokenizer);
  check_together(request);
  return request;
}

json query_object(std::string_view query) {
  static const std::vector<std::string> texts{"stop", "stop_strings", "bad_words", "model", "user"};
  json object = json::object();
  for (const auto& [given, text] : parse_query(query)) {
    const std::string name = given == "max_tokens" ? "max_new_tokens" : given;
    json value = std::find(texts.begin(), texts.end(), name) != texts.end() ? json(text) : value_of(text);
    json& place = object[name];
    if (place.is_null()) place = std::move(value);
    else if (place.is_array()) place.push_back(std::move(value));
    else place = json::array({place, std::move(value)});
  }
  return object;
}

}  // namespace pm::server
