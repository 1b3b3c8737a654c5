// SPDX-License-Identifier: Apache-2.0
// The C++ side of the tokenizer: calls the C ABI of worker/tokenizer/ffi.
#include "worker/tokenizer/tokenizer.h"

#include <array>

#include "worker/base/error.h"
#include "worker/checkpoint/gguf/gguf_tokenizer.h"
#include "worker/tokenizer/buffer.h"

namespace pm {
namespace {

struct Ids : TxIds {
  Ids() : TxIds{nullptr, 0} {}
  Ids(const Ids&) = delete;
  Ids& operator=(const Ids&) = delete;
  ~Ids() { tx_ids_free(*this); }
};

struct Tokens : TxTokens {
  Tokens() : TxTokens{nullptr, 0} {}
  Tokens(const Tokens&) = delete;
  Tokens& operator=(const Tokens&) = delete;
  ~Tokens() { tx_tokens_free(*this); }
};

const TxTokenizer* handle_of(const std::shared_ptr<void>& handle) {
  return static_cast<const TxTokenizer*>(handle.get());
}

/// Status 1 is an error of the request, status 2 a panic, which is an error of the tokenizer.json.
void check(int status, const Buffer& error, const std::string& what) {
  if (status == 0) return;
  if (status == 1) throw Error(Reason::InvalidRequest, what + ": " + error.text());
  throw Error(Reason::ModelUnreadable, what + ": " + error.text());
}

const uint8_t* bytes_of(std::string_view text) {
  // A null pointer means "no second text" to the crate.
  return reinterpret_cast<const uint8_t*>(text.data() ? text.data() : "");
}

std::vector<Token> encoded(const TxTokenizer* handle, std::string_view first, const std::string_view* second,
                           bool special) {
  Tokens tokens;
  Buffer error;
  check(tx_encode_tokens(handle, bytes_of(first), first.size(), second ? bytes_of(*second) : nullptr,
                         second ? second->size() : 0, special, &tokens, &error),
        error, "the text cannot be tokenized");
  std::vector<Token> out;
  out.reserve(tokens.len);
  for (const TxToken& t : std::span(tokens.ptr, tokens.len))
    out.push_back({.id = static_cast<int32_t>(t.id),
                   .type = static_cast<int32_t>(t.type_id),
                   .sequence = t.sequence,
                   .word = t.word,
                   .begin = t.begin,
                   .end = t.end});
  return out;
}

}  // namespace

Tokenizer Tokenizer::open(const std::filesystem::path& folder) {
  std::string why;
  std::optional<Tokenizer> tokenizer = find(folder, &why);
  if (!tokenizer)
    throw Error(Reason::ModelUnreadable,
                why + "; save one there with transformers' AutoTokenizer(...).save_pretrained, or send token ids");
  return *std::move(tokenizer);
}

std::optional<Tokenizer> Tokenizer::find(const std::filesystem::path& folder, std::string* why) {
  TxTokenizer* handle = nullptr;
  Buffer error;
  const std::string gguf = checkpoint::read_gguf_tokenizer(folder, checkpoint::GgufVocabulary::Included);
  if (tx_tokenizer_open(folder.c_str(), gguf.c_str(), &handle, &error) != 0)
    throw Error(Reason::ModelUnreadable, error.text());
  if (!handle) {
    if (why) *why = error.text();
    return std::nullopt;
  }
  Tokenizer tokenizer(std::shared_ptr<void>(handle, [](void* p) { tx_tokenizer_free(static_cast<TxTokenizer*>(p)); }));
  int64_t ids[7] = {};
  Buffer problem;
  if (tx_special_ids(handle, folder.c_str(), gguf.c_str(), ids, &problem) != 0)
    throw Error(Reason::ModelUnreadable, problem.text());
  constexpr std::optional<int32_t> SpecialIds::* roles[] = {&SpecialIds::bos, &SpecialIds::eos, &SpecialIds::unk,
                                                            &SpecialIds::sep, &SpecialIds::pad, &SpecialIds::cls,
                                                            &SpecialIds::mask};
  for (size_t i = 0; i < std::size(roles); ++i)
    if (ids[i] >= 0) tokenizer.special_.*roles[i] = static_cast<int32_t>(ids[i]);
  tokenizer.decodes_as_a_whole_ = tokenizer.settled({}) == 0;
  if (const auto letter = tokenizer.encode("a", false); !letter.empty()) tokenizer.anchor_ = letter.back();
  return tokenizer;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool special) const {
  Ids ids;
  Buffer error;
  check(tx_encode(handle_of(handle_), bytes_of(text), text.size(), special, &ids, &error), error,
        "the text cannot be tokenized");
  return {ids.ptr, ids.ptr + ids.len};
}

std::vector<Token> Tokenizer::encode_with_offsets(std::string_view text, bool special) const {
  return encoded(handle_of(handle_), text, nullptr, special);
}

std::vector<Token> Tokenizer::encode_pair(std::string_view first, std::string_view second, bool special) const {
  return encoded(handle_of(handle_), first, &second, special);
}

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  int64_t id = -1;
  Buffer error;
  check(tx_token_id(handle_of(handle_), bytes_of(token), token.size(), &id, &error), error,
        "the token cannot be looked up");
  if (id < 0) return std::nullopt;
  return static_cast<int32_t>(id);
}

std::string Tokenizer::id_to_token(int32_t id) const {
  Buffer text, error;
  check(tx_token_text(handle_of(handle_), static_cast<uint32_t>(id), &text, &error), error,
        "the id cannot be looked up");
  return text.text();
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  Buffer text, error;
  const auto* data =
      reinterpret_cast<const uint32_t*>(ids.data());  // a negative id becomes one outside of every vocabulary
  check(tx_decode(handle_of(handle_), data, ids.size(), skip_special, &text, &error), error,
        "the ids cannot be decoded");
  return text.text();
}

std::string Tokenizer::piece(int32_t id) const {
  const std::string before = decode({&anchor_, 1}, false);
  const std::string both = decode(std::array{anchor_, id}, false);
  return both.starts_with(before) ? both.substr(before.size()) : decode({&id, 1}, false);
}

bool Tokenizer::continues_word(int32_t id) const {
  bool continues = false;
  Buffer error;
  check(tx_continues_word(handle_of(handle_), static_cast<uint32_t>(id), &continues, &error), error,
        "the id cannot be looked up");
  return continues;
}

size_t Tokenizer::settled(std::span<const int32_t> ids) const {
  size_t count = 0;
  Buffer error;
  check(tx_settled(handle_of(handle_), reinterpret_cast<const uint32_t*>(ids.data()), ids.size(), &count, &error),
        error, "the ids cannot be decoded");
  return count;
}

size_t Tokenizer::vocab_size() const {
  size_t size = 0;
  Buffer error;
  check(tx_vocab_size(handle_of(handle_), &size, &error), error, "the vocabulary cannot be counted");
  return size;
}

}  // namespace pm
