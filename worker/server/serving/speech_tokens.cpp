// SPDX-License-Identifier: Apache-2.0
#include "worker/server/serving/speech_tokens.h"

#include "worker/base/error.h"
#include "worker/server/serving/folder_json.h"

namespace pm::server {
namespace {

using nlohmann::json;

/// Reads ids of one file; errors name it.
class Ids {
 public:
  Ids(std::filesystem::path file, const json& config, int64_t vocabulary)
      : file_(std::move(file)), config_(config), vocabulary_(vocabulary) {}

  std::optional<int32_t> one(const char* key) const {
    const auto found = config_.find(key);
    if (found == config_.end() || found->is_null()) return std::nullopt;
    return id(key, *found);
  }
  std::map<std::string, int32_t> all(const char* key) const {
    std::map<std::string, int32_t> made;
    const auto found = config_.find(key);
    if (found == config_.end() || found->is_null()) return made;
    if (!found->is_object()) refuse(key, *found, "an object of token ids");
    for (const auto& [name, value] : found->items()) made[name] = id(std::string(key) + "." + name, value);
    return made;
  }

 private:
  [[noreturn]] void refuse(const std::string& key, const json& value, const std::string& expected) const {
    throw Error(Reason::ModelUnreadable,
                file_.string() + ": " + key + " is " + value.dump().substr(0, 80) + ", expected " + expected);
  }
  int32_t id(const std::string& key, const json& value) const {
    if (!value.is_number_integer() || value < 0 || value >= vocabulary_)
      refuse(key, value, "a token id below " + std::to_string(vocabulary_));
    return value;
  }

  std::filesystem::path file_;
  const json& config_;
  int64_t vocabulary_;
};

/// Returns the code of a language's token: "en" of "<|en|>".
std::string code_of(const std::string& token) {
  return token.size() > 4 && token.starts_with("<|") && token.ends_with("|>") ? token.substr(2, token.size() - 4)
                                                                              : token;
}

}  // namespace

std::optional<SpeechTokens> SpeechTokens::read(const std::filesystem::path& folder, int64_t vocabulary) {
  const std::filesystem::path file = folder / "generation_config.json";
  const json config = read_json_file(file);
  if (!config.is_object()) return std::nullopt;
  const Ids ids(file, config, vocabulary);
  const auto no_timestamps = ids.one("no_timestamps_token_id");
  if (!no_timestamps) return std::nullopt;
  SpeechTokens made{.vocabulary = vocabulary, .no_timestamps = *no_timestamps};
  made.previous = ids.one("prev_sot_token_id");
  if (const auto most = value_of<int64_t>(config, "max_initial_timestamp_index", -1); most >= 0)
    made.most_initial = most;
  if (!value_of(config, "is_multilingual", true)) return made;
  for (const auto& [token, id] : ids.all("lang_to_id")) made.languages[code_of(token)] = id;
  made.tasks = ids.all("task_to_id");
  made.language = code_of(value_of<std::string>(config, "language", ""));
  return made;
}

}  // namespace pm::server
