// See asked.h.
#include "worker/server/asked.h"

#include <algorithm>

#include "worker/server/api_error.h"

namespace pm::server {
namespace {

using nlohmann::json;

constexpr size_t kStops = 16;
constexpr double kLongestTime = 86'400;

std::vector<std::string> texts_in(const json& value, const std::string& field, size_t most) {
  const std::string allowed = "a string, or an array of at most " + std::to_string(most) + " strings, none of them empty";
  const json list = value.is_array() ? value : json::array({value});
  if (list.size() > most) throw bad_field(field, shown(value), allowed);
  std::vector<std::string> texts;
  for (const auto& text : list) {
    if (!text.is_string() || text.get_ref<const std::string&>().empty()) throw bad_field(field, shown(text), allowed);
    texts.push_back(text);
  }
  return texts;
}

void read_bad_words(Fields& fields, Asked& asked) {
  if (const auto* words = fields.find("bad_words")) asked.bad_words = texts_in(*words, "bad_words", kBadWords);
  const auto* ids = fields.find("bad_words_ids");
  if (!ids) return;
  if (!ids->is_array() || ids->size() > kBadWords) throw bad_field("bad_words_ids", shown(*ids), "an array of at most " + std::to_string(kBadWords) + " arrays of token ids");
  for (const auto& word : *ids) {
    const std::string field = "bad_words_ids[" + std::to_string(asked.bad_word_ids.size()) + "]";
    if (!word.is_array()) throw bad_field(field, shown(word), "an array of token ids");
    asked.bad_word_ids.push_back(ids_of(word, field));
  }
}

void ban(const Asked& asked, const Tokenizer* tokenizer, engine::Sampling& sampling) {
  if (!asked.bad_word_ids.empty() || !asked.bad_words.empty()) sampling.bad_words = asked.bad_word_ids;
  if (asked.bad_words.empty()) return;
  if (!tokenizer) throw ApiError(400, "no_tokenizer", "bad_words are texts, but this model's folder has no tokenizer that is served; send bad_words_ids", "bad_words");
  for (const auto& word : asked.bad_words) {
    for (const std::string& text : {word, " " + word}) {
      const auto ids = tokenizer->encode(text, false);
      if (!ids.empty() && std::find(sampling.bad_words.begin(), sampling.bad_words.end(), ids) == sampling.bad_words.end()) sampling.bad_words.push_back(ids);
    }
  }
}

}  // namespace

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

std::vector<Prompt> prompts_of(const json& value, const std::string& field) {
  const std::string allowed = "a string, an array of strings, an array of token ids, or an array of such arrays";
  if (value.is_string()) return {value.get<std::string>()};
  if (!value.is_array() || value.empty()) throw bad_field(field, shown(value), allowed);
  if (value.front().is_number()) return {ids_of(value, field)};
  if (value.size() > kPrompts) throw bad_field(field, shown(value), "at most " + std::to_string(kPrompts) + " prompts in one request");
  std::vector<Prompt> prompts;
  for (const auto& one : value) {
    const std::string place = field + "[" + std::to_string(prompts.size()) + "]";
    if (one.type() != value.front().type()) throw bad_field(place, shown(one), "the same kind as " + field + "[0]");
    if (one.is_string()) prompts.emplace_back(one.get<std::string>());
    else if (one.is_array()) prompts.emplace_back(ids_of(one, place));
    else throw bad_field(place, shown(one), allowed);
  }
  return prompts;
}

void read_model(Fields& fields, const std::string& model) {
  fields.text("user");
  const auto named = fields.text("model");
  if (named && *named != model) throw ApiError(404, "model_not_found", "model is " + shown(*named) + "; this server has: " + json(model).dump(), "model");
}

void read_common(Fields& fields, Asked& asked) {
  asked.top_p = fields.number("top_p", 0, 1, true);
  asked.top_k = fields.integer("top_k", -1, INT32_MAX);
  asked.min_p = fields.number("min_p", 0, 1);
  asked.typical_p = fields.number("typical_p", 0, 1, true);
  asked.presence_penalty = fields.number("presence_penalty", -2, 2);
  asked.frequency_penalty = fields.number("frequency_penalty", -2, 2);
  asked.repetition_penalty = fields.number("repetition_penalty", 0, 100, true);
  asked.no_repeat_ngram_size = fields.integer("no_repeat_ngram_size", 0, INT32_MAX);
  if (const auto seed = fields.integer("seed", INT64_MIN, INT64_MAX)) asked.seed = static_cast<uint64_t>(*seed);
  asked.max_time = fields.number("max_time", 0, kLongestTime, true);
  asked.ignore_eos = fields.boolean("ignore_eos").value_or(false);
  read_bad_words(fields, asked);
}

void read_stops(Fields& fields, const std::string& name, Asked& asked) {
  if (const auto* value = fields.find(name))
    for (auto& stop : texts_in(*value, name, kStops)) asked.stop.push_back(std::move(stop));
}

engine::Sampling sampling_of(const Asked& asked, const engine::Sampling& defaults, uint64_t seed, const Tokenizer* tokenizer) {
  engine::Sampling sampling = defaults;
  const auto lay = [](const auto& over, auto& under) { if (over) under = *over; };
  sampling.seed = asked.seed.value_or(seed);
  lay(asked.top_p, sampling.top_p);
  lay(asked.min_p, sampling.min_p);
  lay(asked.typical_p, sampling.typical_p);
  lay(asked.presence_penalty, sampling.presence_penalty);
  lay(asked.frequency_penalty, sampling.frequency_penalty);
  lay(asked.repetition_penalty, sampling.repetition_penalty);
  lay(asked.no_repeat_ngram_size, sampling.no_repeat_ngram_size);
  lay(asked.min_new_tokens, sampling.min_new_tokens);
  if (asked.forced_bos) sampling.forced_bos = static_cast<int32_t>(*asked.forced_bos);
  if (asked.forced_eos) sampling.forced_eos = static_cast<int32_t>(*asked.forced_eos);
  if (asked.top_k) sampling.top_k = std::max<int64_t>(*asked.top_k, 0);   // -1 is vLLM's "off"
  ban(asked, tokenizer, sampling);
  if (asked.do_sample) {
    sampling.do_sample = *asked.do_sample;
  } else if (asked.temperature) {
    sampling.do_sample = *asked.temperature > 0;
  } else if (asked.top_p || asked.top_k) {
    sampling.do_sample = true;
  }
  if (asked.temperature) sampling.temperature = *asked.temperature > 0 ? *asked.temperature : 1;
  return sampling;
}

}  // namespace pm::server
