// SPDX-License-Identifier: Apache-2.0
// Decodes the frames of a CTC model to text, as Wav2Vec2CTCTokenizer does.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace pm {

/// A word with the frames that it covers: the first, and the one after the last.
struct CtcWord {
  std::string word;
  int64_t start = 0, end = 0;
  bool operator==(const CtcWord&) const = default;
};

struct CtcText {
  std::string text;
  std::vector<CtcWord> words;
};

/// The vocabulary and the options of a Wav2Vec2CTCTokenizer.
class CtcDecoder {
 public:
  /// Opens vocab.json, tokenizer_config.json, special_tokens_map.json and added_tokens.json of a checkpoint folder.
  /// Returns nothing where there is no vocab.json or the tokenizer is of another class; `why` is then the reason. With
  /// a nested vocabulary target_lang chooses the language. Throws Error{ModelUnreadable} for files that cannot be read.
  static std::optional<CtcDecoder> find(const std::filesystem::path& folder, std::string* why = nullptr);

  /// Returns the text of one id per frame: equal tokens in a row are one, the padding token is the blank, the word
  /// delimiter becomes its replacement. Words have their spelling in the vocabulary, also with do_lower_case, as in
  /// transformers.
  CtcText decode(std::span<const int64_t> ids) const;
  /// Returns the ids without repetitions and blanks.
  std::vector<int64_t> collapse(std::span<const int64_t> ids) const;

 private:
  const std::string& token(int64_t id) const;

  std::map<int64_t, std::string> tokens_;
  std::string pad_ = "<pad>", unk_ = "<unk>", delimiter_ = "|", replacement_ = " ";
  bool lower_case_ = false, clean_up_ = false;
};

}  // namespace pm
