// SPDX-License-Identifier: Apache-2.0
// Tokenizer: text to token ids and back, by the Hugging Face tokenizers crate behind a C ABI (worker/tokenizer/ffi).
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pm {

/// One token with its offsets. `begin`, `end`: the bytes of the text that it covers (whole characters; 0, 0 for an
/// added token).
struct Token {
  int32_t id = 0;
  int32_t type = 0;  ///< token_type_ids as the post-processor gives them: 0, or 1 in the second text of a BERT pair
  int32_t sequence =
      -1;             ///< 0: from the first text, 1: from the second, -1: a special token that the post-processor added
  int32_t word = -1;  ///< number of the word in its text, -1 without one
  size_t begin = 0, end = 0;
};

/// Ids of the special tokens; an id is absent where the checkpoint names no such token.
struct SpecialIds {
  std::optional<int32_t> bos, eos, unk, sep, pad, cls, mask;
};

/// A tokenizer. One handle serves any number of threads; copies share it.
class Tokenizer {
 public:
  static constexpr std::string_view continuation_mark = "@@";

  /// Opens the tokenizer of a checkpoint folder: tokenizer.json, else vocab.txt, vocab.json + merges.txt, a
  /// SentencePiece model or bytes, by the tokenizer's class or the model type. Throws Error{ModelUnreadable}
  /// when there is none or it is broken.
  static Tokenizer open(const std::filesystem::path& folder);
  /// Opens the tokenizer like open(), but returns nothing for a folder without a supported tokenizer (token ids in and
  /// out only); `why` is then the reason.
  static std::optional<Tokenizer> find(const std::filesystem::path& folder, std::string* why = nullptr);
  /// Returns the ids of UTF-8 `text`; `special` adds the special tokens of the checkpoint's post-processor. Throws
  /// Error{InvalidRequest} for bytes that are not UTF-8.
  std::vector<int32_t> encode(std::string_view text, bool special = true) const;
  /// Returns the tokens of `text` with types and byte offsets; errors as encode().
  std::vector<Token> encode_with_offsets(std::string_view text, bool special = true) const;
  /// Returns the tokens of a pair of texts as the checkpoint's post-processor joins them ([CLS] first [SEP] second
  /// [SEP], ...); errors as encode().
  std::vector<Token> encode_pair(std::string_view first, std::string_view second, bool special = true) const;
  /// Returns the special tokens by special_tokens_map.json, tokenizer_config.json, the defaults of the tokenizer's
  /// class and the vocabulary.
  const SpecialIds& special() const { return special_; }
  /// Returns the id of a token as the vocabulary spells it ("[MASK]", "▁the").
  std::optional<int32_t> token_to_id(std::string_view token) const;
  /// Returns the token of `id` as the vocabulary spells it; empty when no token has it.
  std::string id_to_token(int32_t id) const;
  /// Returns the text of `ids`, always valid UTF-8: bytes that form no character become U+FFFD, ids outside of the
  /// vocabulary nothing.
  std::string decode(std::span<const int32_t> ids, bool skip_special = true) const;
  /// Returns the text that `id` adds inside a text, leading space included, special or not; U+FFFD for a part of a
  /// character.
  std::string piece(int32_t id) const;
  /// Returns whether the spelling of `id` ends in a mark ("@@") that a token after it removes. A text that ends with
  /// such a token ends with continuation_mark.
  bool continues_word(int32_t id) const;

  /// Returns whether the text of an id may depend on all ids before it and on a few after it. Then only the text of the
  /// first settled() ids is final.
  bool decodes_as_a_whole() const { return decodes_as_a_whole_; }

  /// Returns how many of the first ids have a text that no later id changes; only for decodes_as_a_whole().
  size_t settled(std::span<const int32_t> ids) const;

  /// Returns the number of ids, added tokens included.
  size_t vocab_size() const;

 private:
  friend class TokenMatcher;
  struct Constraints;
  explicit Tokenizer(std::shared_ptr<void> handle) : handle_(std::move(handle)), constraints_(make_constraints()) {}
  static std::shared_ptr<Constraints> make_constraints();
  std::shared_ptr<void> constraint_vocabulary() const;
  std::shared_ptr<void> handle_;
  std::shared_ptr<Constraints> constraints_;  ///< what the constraints of all requests share
  SpecialIds special_;
  bool decodes_as_a_whole_ = false;
  int32_t anchor_ = 0;  ///< an ordinary token, before which piece() decodes an id
};

/// Incremental detokenizer: converts a stream of ids to text pieces of whole UTF-8 characters. An id that ends inside a
/// character is held back. The concatenated pieces equal the decoding of all ids at once.
class Detokenizer {
 public:
  /// `before` holds the ids that the stream continues (the prompt's): decoders that drop a leading space need to know
  /// that the stream is not the start.
  explicit Detokenizer(const Tokenizer& tokenizer, std::span<const int32_t> before = {});
  /// Returns true if the next id is decoded as the beginning of a text, because no text stands before it.
  bool at_start() const { return text(read_).empty(); }
  /// Returns the text that `id` completes.
  std::string push(int32_t id);
  /// Returns the rest at the end of the stream; incomplete characters become U+FFFD.
  std::string flush();

 private:
  std::string emit(bool complete);
  std::string emit_first(size_t count);
  bool ends_inside_word(size_t count) const;
  std::string text(size_t count) const;

  const Tokenizer& tokenizer_;
  std::vector<int32_t> ids_;  ///< a window: context already emitted, then the ids not yet emitted
  bool inside_word_ = false;  ///< the last pushed id that is shown continues in the next one
  size_t read_ = 0;           ///< ids_[0, read_) are emitted
  size_t mark_ = 0;  ///< an earlier value of read_, so no character crosses it: where the window may next begin
};

}  // namespace pm
