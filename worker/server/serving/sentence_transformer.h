// SPDX-License-Identifier: Apache-2.0
// The files of a sentence-transformers folder beside those of the model: how its texts are prepared, pooled and
// compared.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "worker/server/serving/embedding.h"

namespace pm::server {

/// What a text is embedded for; sentence-transformers has a prompt for each where the model was trained so.
enum class TextUse : uint8_t { Unknown, Query, Document };

/// The prompts of config_sentence_transformers.json.
struct Prompts {
  std::map<std::string, std::string> by_name;
  std::string standard;  ///< prefix of every text that is embedded without another prompt

  /// Returns the prefix of a text: that of "query", or the first of "document", "passage" and "corpus"; otherwise the
  /// standard one.
  const std::string& of(TextUse use) const;
};

/// Reads the prompts of a folder. Throws Error{ModelUnreadable} for a file that cannot be read.
Prompts read_prompts(const std::filesystem::path& folder);

struct SentenceTransformer {
  Embedding embedding;
  Prompts prompts;
  Similarity similarity = Similarity::Cosine;
  int64_t max_tokens = 0;  ///< of a text; 0: as many as the model takes
  std::string refusal;     ///< why texts are not embedded as the folder says; empty: they are
};

/// Reads modules.json, the configuration and weights of its modules, sentence_bert_config.json and
/// config_sentence_transformers.json. `states` is the output of `width` values per token that the pooling reads.
/// Returns nothing for a folder without modules.json. Modules that are not supported are a `refusal`. Throws
/// Error{ModelUnreadable} for files that cannot be read.
std::optional<SentenceTransformer> read_sentence_transformer(const std::filesystem::path& folder,
                                                             const std::string& states, int64_t width);

}  // namespace pm::server
