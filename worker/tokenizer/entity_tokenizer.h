// SPDX-License-Identifier: Apache-2.0
// Tokenizes a text with the entities that it mentions, as transformers' LukeTokenizer does.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "worker/tokenizer/tokenizer.h"

namespace pm {

/// The tokens and entities of one text.
struct EntityEncoding {
  std::vector<int32_t> ids;           ///< tokens, with special ones
  std::vector<int64_t> entities;      ///< ids of entities
  std::vector<int64_t> mentions;      ///< [entities, width]: the tokens that mention each, then -1
  size_t width = 0;                   ///< the most tokens that mention an entity
  std::vector<int64_t> starts, ends;  ///< first and last token of each mention
  bool has_places = false;            ///< the model reads starts and ends
};

/// Where a text mentions an entity: characters from `first`, before `second`.
using CharacterSpan = std::pair<size_t, size_t>;

class EntityTokenizer {
 public:
  /// Reads the titles of entities (`entity_vocab` of tokenizer_config.json, else entity_vocab.json) and the settings of
  /// a checkpoint. Without titles there are the four special entities. Throws Error{ModelUnreadable}.
  EntityTokenizer(const std::filesystem::path& folder, Tokenizer tokenizer);

  /// Returns the tokens of UTF-8 `text` and an entity for each span: the one with the title, the unknown one for other
  /// titles, and masked ones without `titles`. The checkpoint's `task` puts marks around the spans, and says how many
  /// of them there are. With `max_tokens` the text is cut behind so many tokens, and entities behind it are left out.
  /// Throws Error{InvalidRequest} for spans outside of the text, for a number of spans or titles that does not fit, and
  /// for bytes that are not UTF-8.
  EntityEncoding encode(std::string_view text, std::span<const CharacterSpan> spans,
                        const std::vector<std::string>* titles, std::optional<size_t> max_tokens = {}) const;

 private:
  enum class Task : uint8_t { None, Entity, Pair, Spans };
  struct Tokens;
  void check(size_t characters, std::span<const CharacterSpan> spans, const std::vector<std::string>* titles) const;
  Tokens split(std::string_view text, std::span<const CharacterSpan> spans) const;
  void mark(Tokens& tokens) const;
  std::vector<int64_t> entities(size_t count, const std::vector<std::string>* titles) const;

  Tokenizer tokenizer_;
  std::unordered_map<std::string, int64_t> ids_;  ///< of entities, by title
  int64_t unknown_ = 0, masked_ = 0, second_masked_ = 0;
  int32_t marks_[2] = {0, 0};  ///< tokens around the first and the second entity; of tasks that have them
  Task task_ = Task::None;
  size_t max_entities_ = 32, width_ = 30;
};

}  // namespace pm
