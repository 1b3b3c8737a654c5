// Text to token ids and back, by the Hugging Face tokenizers crate behind a C ABI (worker/tokenizer/ffi).
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

/// One token of Tokenizer::tokens. `begin`, `end`: the bytes of the text that it stands for (whole characters; 0, 0 for an added token).
struct Token {
  int32_t id = 0;
  int32_t type = 0;        ///< token_type_ids as the post-processor gives them: 0, or 1 in the second text of a BERT pair
  int32_t sequence = -1;   ///< 0: from the first text, 1: from the second, -1: a special token that the post-processor added
  int32_t word = -1;       ///< number of the word in its text, -1 without one
  size_t begin = 0, end = 0;
};

/// Ids of the tokens that have a part to play, each absent where the checkpoint names none.
struct SpecialIds { std::optional<int32_t> bos, eos, unk, sep, pad, cls, mask; };

/// One handle serves any number of threads; copies share it.
class Tokenizer {
 public:
  /// Of a checkpoint folder: tokenizer.json, else vocab.txt, vocab.json + merges.txt, a SentencePiece model or bytes, by the tokenizer's
  /// class or the model's type. Throws Error{Model, "ModelUnreadable"} when there is none or it is broken.
  static Tokenizer open(const std::filesystem::path& folder);
  /// As open, but nothing for a folder whose tokenizer we do not build (token ids in and out only); `why` then says the reason.
  static std::optional<Tokenizer> find(const std::filesystem::path& folder, std::string* why = nullptr);
  /// Ids of UTF-8 `text`; `special` adds the special tokens that the checkpoint's post-processor adds.
  /// Throws Error{Request, "InvalidRequest"} for bytes that are not UTF-8.
  std::vector<int32_t> encode(std::string_view text, bool special = true) const;
  /// Tokens of `text` with types and byte offsets; errors as encode.
  std::vector<Token> tokens(std::string_view text, bool special = true) const;
  /// Tokens of a pair of texts as the checkpoint's post-processor joins them ([CLS] first [SEP] second [SEP], ...); errors as encode.
  std::vector<Token> pair(std::string_view first, std::string_view second, bool special = true) const;
  /// Roles of tokens by special_tokens_map.json, tokenizer_config.json, the defaults of the tokenizer's class and the vocabulary.
  const SpecialIds& special() const { return special_; }
  /// Id of a token spelled as in the vocabulary ("[MASK]", "▁the").
  std::optional<int32_t> id_of(std::string_view token) const;
  /// How the vocabulary spells `id`; empty when no token has it.
  std::string spelling(int32_t id) const;
  /// Text of `ids`, always valid UTF-8: bytes that form no character become U+FFFD, ids outside the vocabulary nothing.
  std::string decode(std::span<const int32_t> ids, bool skip_special = true) const;
  /// Text that `id` adds inside a text, leading space included, special or not; U+FFFD for a part of a character.
  std::string piece(int32_t id) const;
  /// Number of ids, added tokens included.
  size_t vocab_size() const;

 private:
  explicit Tokenizer(std::shared_ptr<void> handle) : handle_(std::move(handle)) {}
  std::shared_ptr<void> handle_;
  SpecialIds special_;
  int32_t anchor_ = 0;   ///< an ordinary token, for what another looks like behind it
};

/// Turns a stream of ids into text pieces that are whole UTF-8 characters: an id that ends inside a character is held back.
/// The pieces joined are what decoding all ids at once gives.
class Detokenizer {
 public:
  /// `before` is what the stream continues (the prompt's ids): decoders that drop a leading space need to know that it is not the start.
  explicit Detokenizer(const Tokenizer& tokenizer, std::span<const int32_t> before = {});
  /// Text that became complete with `id`.
  std::string push(int32_t id);
  /// What is left at the end of the stream; bytes that never became a character come out as U+FFFD.
  std::string flush();

 private:
  std::string emit(bool complete);

  const Tokenizer& tokenizer_;
  std::vector<int32_t> ids_;   ///< a window: context already emitted, then the ids not yet emitted
  size_t read_ = 0;            ///< ids_[0, read_) are emitted
  size_t mark_ = 0;            ///< an earlier value of read_, so no character crosses it: where the window may next begin
};

}  // namespace pm
