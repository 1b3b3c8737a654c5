// SPDX-License-Identifier: Apache-2.0
// Rerankers that are causal models: sentence-transformers' module LogitScore behind a model that generates.
#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "worker/policy/spec/model.h"
#include "worker/server/serving/sentence_transformer.h"
#include "worker/tokenizer/chat_template.h"

namespace pm::server {

/// How a pair becomes a prompt by the folder's chat template: a message of the role "query" and one of the role
/// "document", behind an instruction as the system message.
struct PairTemplate {
  ChatTemplate chat;
  bool parts = false;              ///< the content of a message is a list of parts, [{"type": "text", "text": ...}]
  bool generation_prompt = false;  ///< the template's add_generation_prompt
  bool restores_suffix = true;     ///< a truncated prompt ends as the template ends it
  nlohmann::json kwargs = nlohmann::json::object();  ///< further variables of the template

  /// Renders the prompt at `now`, in seconds. Throws Error{InvalidRequest} where the template refuses the messages.
  std::string render(const std::string& instruction, const std::string& query, const std::string& document,
                     int64_t now) const;
};

/// The score of a pair is the logit of a token behind the prompt, less that of another one. An activation follows.
struct LogitScore {
  int32_t true_token = 0;
  std::optional<int32_t> false_token;
  Prompts prompts;                       ///< the instructions of config_sentence_transformers.json
  std::optional<PairTemplate> messages;  ///< absent: the tokenizer joins a pair, the instruction before the query
  int64_t max_tokens = 0;                ///< of a prompt; 0: as many as the model takes
  bool truncates_start = false;          ///< truncation removes the first tokens of a prompt, not the last
};

/// Reads modules.json, the module's configuration, and what sentence_bert_config.json and tokenizer_config.json say
/// about pairs. Returns nothing for a folder without the module. Throws Error{ModelUnreadable} for a folder that has it
/// and cannot be served so, by the name of the file and the option.
std::optional<LogitScore> read_logit_score(const policy::Model& model, const std::filesystem::path& folder);

}  // namespace pm::server
