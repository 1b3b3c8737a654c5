// SPDX-License-Identifier: Apache-2.0
#include "worker/tokenizer/ctc_decoder.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "worker/base/error.h"
#include "worker/tokenizer/buffer.h"

namespace pm {
namespace {

using nlohmann::json;
using std::filesystem::path;

Error unreadable(const path& file, const std::string& what) {
  return Error(Reason::ModelUnreadable, file.string() + ": " + what);
}

/// Returns the object in a file; an empty one where there is no file.
json read_object(const path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return json::object();
  json object = json::parse(in, nullptr, false);
  if (!object.is_object()) throw unreadable(file, "is not a JSON object");
  return object;
}

/// Takes over a token that a file spells as a text or as {"content": text}. A null is no token, which equals none.
void read_token(const json& object, const char* key, std::string& into) {
  const auto found = object.find(key);
  if (found == object.end()) return;
  const json& value = found->is_object() && found->contains("content") ? (*found)["content"] : *found;
  into = value.is_string() ? value.get<std::string>() : std::string();
}

bool read_flag(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size()) text.replace(at, from.size(), to);
}

/// Removes the spaces before punctuation that transformers' clean_up_tokenization removes.
void clean_up(std::string& text) {
  for (const char* mark : {".", "?", "!", ","}) replace_all(text, std::string(" ") + mark, mark);
  replace_all(text, " ' ", "'");
  for (const char* ending : {"n't", "'m", "'s", "'ve", "'re"}) replace_all(text, std::string(" ") + ending, ending);
}

std::string strip(const std::string& text, bool lower_case) {
  Buffer stripped, error;
  if (tx_strip(reinterpret_cast<const uint8_t*>(text.data()), text.size(), lower_case, &stripped, &error) != 0)
    throw Error(Reason::InternalError, "a transcription cannot be stripped: " + error.text());
  return stripped.text();
}

/// A run of frames with one token that is no blank.
struct Piece {
  std::string text;
  int64_t start, end;
};

/// Divides pieces into words at those that are the delimiter's replacement.
std::vector<CtcWord> words_of(const std::vector<Piece>& pieces, const std::string& space) {
  std::vector<CtcWord> words;
  bool inside = false;
  for (const Piece& piece : pieces) {
    if (piece.text == space) {
      inside = false;
    } else if (inside) {
      words.back().word += piece.text;
      words.back().end = piece.end;
    } else {
      words.push_back({piece.text, piece.start, piece.end});
      inside = true;
    }
  }
  return words;
}

}  // namespace

std::optional<CtcDecoder> CtcDecoder::find(const path& folder, std::string* why) {
  const auto absent = [&](const std::string& reason) -> std::optional<CtcDecoder> {
    if (why) *why = reason;
    return std::nullopt;
  };
  const path file = folder / "vocab.json";
  if (!std::filesystem::exists(file)) return absent("the checkpoint has no vocab.json");
  const json config = read_object(folder / "tokenizer_config.json");
  const std::string name = config.value("tokenizer_class", json()).is_string() ? config["tokenizer_class"] : json("");
  if (!name.empty() && name != "Wav2Vec2CTCTokenizer" && name != "Wav2Vec2Tokenizer")
    return absent("the tokenizer is " + name + "; supported is Wav2Vec2CTCTokenizer");
  json vocab = read_object(file);
  if (const auto language = config.find("target_lang"); language != config.end() && language->is_string()) {
    const std::string chosen = *language;
    if (!vocab.contains(chosen) || !vocab[chosen].is_object())
      throw unreadable(file, "has no vocabulary of the language \"" + chosen + "\", which target_lang names");
    vocab = json(vocab[chosen]);
  }
  CtcDecoder made;
  for (const auto& [token, id] : vocab.items()) {
    if (id.is_object())
      throw unreadable(file,
                       "holds vocabularies of several languages; choose one as target_lang in "
                       "tokenizer_config.json");
    if (!id.is_number_integer()) throw unreadable(file, "the id of \"" + token + "\" is " + id.dump());
    made.tokens_[id] = token;
  }
  std::string bos = "<s>", eos = "</s>";
  for (const json& source : {read_object(folder / "special_tokens_map.json"), config}) {
    read_token(source, "bos_token", bos);
    read_token(source, "eos_token", eos);
    read_token(source, "unk_token", made.unk_);
    read_token(source, "pad_token", made.pad_);
    read_token(source, "word_delimiter_token", made.delimiter_);
    read_token(source, "replace_word_delimiter_char", made.replacement_);
  }
  made.lower_case_ = read_flag(config, "do_lower_case");
  made.clean_up_ = read_flag(config, "clean_up_tokenization_spaces");
  const json added = read_object(folder / "added_tokens.json");
  for (const auto& [token, id] : added.items())
    if (id.is_number_integer()) made.tokens_.emplace(id.get<int64_t>(), token);
  // special tokens that no file gives an id stand behind the vocabulary
  for (const std::string& token : {bos, eos, made.unk_, made.pad_, made.delimiter_}) {
    const bool known =
        std::any_of(made.tokens_.begin(), made.tokens_.end(), [&](const auto& one) { return one.second == token; });
    if (!token.empty() && !known)
      made.tokens_.emplace(made.tokens_.empty() ? 0 : made.tokens_.rbegin()->first + 1, token);
  }
  return made;
}

const std::string& CtcDecoder::token(int64_t id) const {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? unk_ : found->second;
}

std::vector<int64_t> CtcDecoder::collapse(std::span<const int64_t> ids) const {
  std::vector<int64_t> kept;
  for (size_t i = 0; i < ids.size(); ++i)
    if ((i == 0 || token(ids[i]) != token(ids[i - 1])) && token(ids[i]) != pad_) kept.push_back(ids[i]);
  return kept;
}

CtcText CtcDecoder::decode(std::span<const int64_t> ids) const {
  std::vector<Piece> pieces;
  for (size_t first = 0; first < ids.size();) {
    const std::string& own = token(ids[first]);
    size_t end = first + 1;
    while (end < ids.size() && token(ids[end]) == own) ++end;
    if (own != pad_)
      pieces.push_back(
          {own == delimiter_ ? replacement_ : own, static_cast<int64_t>(first), static_cast<int64_t>(end)});
    first = end;
  }
  CtcText decoded;
  for (const Piece& piece : pieces) decoded.text += piece.text;
  decoded.text = strip(decoded.text, lower_case_);
  if (clean_up_) clean_up(decoded.text);
  decoded.words = words_of(pieces, replacement_);
  return decoded;
}

}  // namespace pm
