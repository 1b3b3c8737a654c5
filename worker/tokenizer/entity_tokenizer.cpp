// SPDX-License-Identifier: Apache-2.0
#include "worker/tokenizer/entity_tokenizer.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "base/utf8.h"
#include "worker/base/error.h"

namespace pm {
namespace {

using nlohmann::json;
using std::filesystem::path;

constexpr uintmax_t max_file_bytes = uintmax_t{256} << 20;
constexpr size_t max_setting = 1024;  ///< of entities, and of tokens that mention one

[[noreturn]] void unreadable(const path& file, const std::string& what) {
  throw Error(Reason::ModelUnreadable, file.string() + ": " + what);
}

[[noreturn]] void invalid(const std::string& what) { throw Error(Reason::InvalidRequest, what); }

/// Returns the object in a file; nothing where there is no file.
json read_object(const path& file) {
  std::error_code failed;
  const auto size = std::filesystem::file_size(file, failed);
  if (failed) return {};
  if (size > max_file_bytes) unreadable(file, "has more than 256 MiB");
  std::ifstream in(file, std::ios::binary);
  json object = json::parse(in, nullptr, false);
  if (!object.is_object()) unreadable(file, "is not a JSON object");
  return object;
}

/// Returns a token that settings spell as a text or as {"content": text}; `otherwise` where they do not.
std::string token(const json& settings, std::initializer_list<const char*> keys, const std::string& otherwise) {
  for (const char* key : keys) {
    const auto found = settings.find(key);
    if (found == settings.end()) continue;
    const json& value = found->is_object() && found->contains("content") ? (*found)["content"] : *found;
    if (value.is_string()) return value.get<std::string>();
  }
  return otherwise;
}

size_t count(const path& file, const json& settings, const char* key, size_t otherwise) {
  const auto found = settings.find(key);
  if (found == settings.end()) return otherwise;
  const auto value = base::integer_from(*found, 1, max_setting);
  if (!value) unreadable(file, std::string(key) + " is no number from 1 to " + std::to_string(max_setting));
  return static_cast<size_t>(*value);
}

std::vector<size_t> beginnings_of_characters(std::string_view text) {
  std::vector<size_t> starts;
  for (size_t i = 0; i < text.size(); ++i)
    if (!base::continues_character(text[i])) starts.push_back(i);
  starts.push_back(text.size());
  return starts;
}

std::string spelled(const CharacterSpan& span) {
  return "[" + std::to_string(span.first) + ", " + std::to_string(span.second) + "]";
}

}  // namespace

/// Tokens of a text without special ones, and the first token of each mention with the one behind its last.
struct EntityTokenizer::Tokens {
  std::vector<int32_t> ids;
  std::vector<std::pair<size_t, size_t>> spans;
};

EntityTokenizer::EntityTokenizer(const path& folder, Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {
  const path file = folder / "tokenizer_config.json";
  json set = read_object(file);
  if (set.is_null()) set = json::object();
  const auto inner = set.find("entity_vocab");
  const json titles = inner != set.end() && inner->is_object() ? *inner : read_object(folder / "entity_vocab.json");
  const std::array<std::string, 4> special{
      token(set, {"entity_unk_token"}, "[UNK]"), token(set, {"entity_pad_token"}, "[PAD]"),
      token(set, {"entity_mask_token"}, "[MASK]"), token(set, {"entity_mask2_token"}, "[MASK2]")};
  for (const auto& [title, id] : titles.items()) {
    const auto number = base::integer_from(id, 0, INT32_MAX);
    if (!number) unreadable(folder / "entity_vocab.json", "gives \"" + title + "\" no id");
    ids_[title] = *number;
  }
  if (titles.is_null())
    for (const std::string& name : special) ids_.try_emplace(name, static_cast<int64_t>(ids_.size()));
  for (const std::string& name : special)
    if (!ids_.contains(name)) unreadable(folder / "entity_vocab.json", "lacks the entity \"" + name + "\"");
  unknown_ = ids_.at(special[0]);
  masked_ = ids_.at(special[2]);
  second_masked_ = ids_.at(special[3]);
  width_ = count(file, set, "max_mention_length", width_);
  max_entities_ = count(file, set, "max_entity_length", max_entities_);
  if (!tokenizer_.special().cls || !tokenizer_.special().sep) unreadable(file, "names no cls_token and sep_token");
  const auto task = set.find("task");
  if (task == set.end() || task->is_null()) return;
  static const std::map<std::string, Task> tasks{{"entity_classification", Task::Entity},
                                                 {"entity_pair_classification", Task::Pair},
                                                 {"entity_span_classification", Task::Spans}};
  const auto found = task->is_string() ? tasks.find(task->get<std::string>()) : tasks.end();
  if (found == tasks.end())
    unreadable(file,
               "has another task than entity_classification, entity_pair_classification and "
               "entity_span_classification");
  task_ = found->second;
  if (task_ == Task::Spans) return;
  max_entities_ = task_ == Task::Pair ? 2 : 1;
  const std::array<std::string, 2> marks{token(set, {"entity_token_1", "entity_1_token"}, "<ent>"),
                                         token(set, {"entity_token_2", "entity_2_token"}, "<ent2>")};
  for (size_t i = 0; i < 2; ++i) {
    auto id = tokenizer_.token_to_id(marks[i]);
    if (!id) id = tokenizer_.token_to_id("▁" + marks[i]);  // the tokenizer of a SentencePiece model spells its space
    if (!id) unreadable(file, "the vocabulary lacks \"" + marks[i] + "\"");
    marks_[i] = *id;
  }
}

void EntityTokenizer::check(size_t characters, std::span<const CharacterSpan> spans,
                            const std::vector<std::string>* titles) const {
  const size_t wanted = task_ == Task::Entity ? 1 : task_ == Task::Pair ? 2 : 0;
  if (wanted != 0 && spans.size() != wanted)
    invalid("entity_spans has " + std::to_string(spans.size()) + " spans; this model classifies " +
            (wanted == 1 ? "one entity" : "a pair of entities") + ": send " + std::to_string(wanted));
  if (spans.empty()) invalid("entity_spans has no span; send at least one");
  if (titles && task_ != Task::None)
    invalid("entities are given to a model that classifies masked ones; send entity_spans without them");
  if (titles && titles->size() != spans.size())
    invalid("entities has " + std::to_string(titles->size()) + " titles for " + std::to_string(spans.size()) +
            " spans; send one for each, or none");
  for (size_t i = 0; i < spans.size(); ++i)
    if (spans[i].first >= spans[i].second || spans[i].second > characters)
      invalid("entity_spans[" + std::to_string(i) + "] is " + spelled(spans[i]) +
              "; allowed: [start, end] with start below end, in the text's " + std::to_string(characters) +
              " characters");
}

/// Cuts the text where a span begins or ends, and tokenizes each part. A space before such a place belongs to what
/// follows.
EntityTokenizer::Tokens EntityTokenizer::split(std::string_view text, std::span<const CharacterSpan> spans) const {
  const std::vector<size_t> starts = beginnings_of_characters(text);
  std::map<size_t, size_t> places;  // character -> number of the token that begins there
  for (const auto& [first, second] : spans) places[first] = places[second] = 0;
  Tokens out;
  size_t at = 0;
  const auto append = [&](size_t end) {
    const auto ids = tokenizer_.encode(text.substr(at, end - at), false);
    out.ids.insert(out.ids.end(), ids.begin(), ids.end());
    at = end;
  };
  for (auto& [character, token] : places) {
    size_t end = starts[character];
    if (end > 0 && text[end - 1] == ' ') --end;
    if (end != at) append(end);
    token = out.ids.size();
  }
  append(text.size());
  for (const auto& [first, second] : spans) out.spans.emplace_back(places[first], places[second]);
  return out;
}

/// Puts marks around the first entity, or around both.
void EntityTokenizer::mark(Tokens& tokens) const {
  std::vector<std::pair<std::pair<size_t, size_t>, int32_t>> marked{{tokens.spans[0], marks_[0]}};
  if (task_ == Task::Pair) {
    marked.emplace_back(tokens.spans[1], marks_[1]);
    const bool in_order = tokens.spans[0].first < tokens.spans[1].first;
    tokens.spans[in_order ? 1 : 0].first += 2;
    tokens.spans[in_order ? 1 : 0].second += 2;
    if (in_order) std::swap(marked[0], marked[1]);  // the one behind is marked first, so that places stay valid
  }
  for (auto& span : tokens.spans) span.second += 2;
  for (const auto& [span, id] : marked) {
    tokens.ids.insert(tokens.ids.begin() + static_cast<ptrdiff_t>(span.second), id);
    tokens.ids.insert(tokens.ids.begin() + static_cast<ptrdiff_t>(span.first), id);
  }
}

std::vector<int64_t> EntityTokenizer::entities(size_t count, const std::vector<std::string>* titles) const {
  if (task_ == Task::Pair) return {masked_, second_masked_};
  std::vector<int64_t> ids(count, masked_);
  if (!titles) return ids;
  for (size_t i = 0; i < count; ++i) {
    const auto found = ids_.find((*titles)[i]);
    ids[i] = found == ids_.end() ? unknown_ : found->second;
  }
  return ids;
}

EntityEncoding EntityTokenizer::encode(std::string_view text, std::span<const CharacterSpan> spans,
                                       const std::vector<std::string>* titles, std::optional<size_t> max_tokens) const {
  check(beginnings_of_characters(text).size() - 1, spans, titles);
  Tokens tokens = split(text, spans);
  if (task_ == Task::Entity || task_ == Task::Pair) mark(tokens);
  const std::vector<int64_t> ids = entities(spans.size(), titles);
  const size_t least = 2;  // special tokens
  if (max_tokens && tokens.ids.size() + least > *max_tokens) tokens.ids.resize(std::max(*max_tokens, least) - least);
  EntityEncoding out;
  out.width = width_;
  out.has_places = task_ == Task::Spans;
  for (size_t i = 0; i < tokens.spans.size(); ++i) {
    const auto [first, end] = tokens.spans[i];
    if (end > tokens.ids.size() || (max_tokens && out.entities.size() == max_entities_)) continue;
    out.entities.push_back(ids[i]);
    for (size_t k = 0; k < width_; ++k)
      out.mentions.push_back(first + k < end ? static_cast<int64_t>(1 + first + k) : -1);
    out.starts.push_back(static_cast<int64_t>(1 + first));
    out.ends.push_back(static_cast<int64_t>(end));
  }
  out.ids.push_back(*tokenizer_.special().cls);
  out.ids.insert(out.ids.end(), tokens.ids.begin(), tokens.ids.end());
  out.ids.push_back(*tokenizer_.special().sep);
  return out;
}

}  // namespace pm
