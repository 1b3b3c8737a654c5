// What a request says about how tokens are chosen and where they end: read here once for all routes that generate, whatever their dialect.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "worker/engine/request.h"
#include "worker/server/json_body.h"
#include "worker/tokenizer/tokenizer.h"

namespace pm::server {

using Prompt = std::variant<std::string, std::vector<int32_t>>;

constexpr size_t kPrompts = 128;       ///< of one request
constexpr int64_t kChoices = 128;      ///< answers to one prompt
constexpr int64_t kLogprobs = 20;      ///< alternatives of a token
constexpr size_t kBadWords = 1024;

/// Absent values are the model's.
struct Asked {
  std::optional<bool> do_sample;
  std::optional<double> temperature, top_p, min_p, typical_p;
  std::optional<double> presence_penalty, frequency_penalty, repetition_penalty;
  std::optional<int64_t> top_k, no_repeat_ngram_size, min_new_tokens, max_new_tokens;
  std::optional<int64_t> forced_bos, forced_eos;     ///< ids: an encoder-decoder's first token after the start, such as a language's; the last one
  std::optional<uint64_t> seed;
  std::optional<double> max_time;                    ///< seconds
  std::vector<std::string> stop, bad_words;
  std::vector<std::vector<int32_t>> bad_word_ids;
  std::optional<std::vector<int64_t>> eos;           ///< end tokens
  bool ignore_eos = false;                           ///< go on after an end token
};

/// "model", which has to be the served name where it is given, and "user", who asks. Throws ApiError 404 for another name.
void read_model(Fields&, const std::string& model);

/// Fields that have the same name and meaning everywhere: top_p, top_k, min_p, typical_p, the penalties, no_repeat_ngram_size, seed, max_time,
/// bad_words, ignore_eos. All readers throw ApiError 400 that names the field.
void read_common(Fields&, Asked&);
/// `stop` or what else a dialect calls it: a text or several, none of them empty. Appended.
void read_stops(Fields&, const std::string& name, Asked&);

/// OpenAI's four forms of prompts: string, [string], [id], [[id]].
std::vector<Prompt> prompts_of(const nlohmann::json& value, const std::string& field);
/// Token ids, not empty.
std::vector<int32_t> ids_of(const nlohmann::json& array, const std::string& field);

/// Sampling of a request. do_sample absent: as the model's, but a temperature of 0 is greedy, and a positive one, or top_p or top_k, samples (vLLM's
/// rule; OpenAI's default of temperature 1 does not hold). `seed` is used where the request has none. Texts in bad_words are banned as a word of
/// their own and as the continuation of one; they need the tokenizer.
engine::Sampling sampling_of(const Asked&, const engine::Sampling& defaults, uint64_t seed, const Tokenizer*);

}  // namespace pm::server
