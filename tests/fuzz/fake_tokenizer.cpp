// SPDX-License-Identifier: Apache-2.0
// Stands for the tokenizers crate in the fuzzers: every byte is a token, as a byte-level tokenizer without merges would
// have it.
#include <nlohmann/json.hpp>

#include <cstring>

#include "worker/base/error.h"
#include "worker/tokenizer/chat_template.h"
#include "worker/tokenizer/ffi/textops.h"
#include "worker/tokenizer/reply_form.h"
#include "worker/tokenizer/token_matcher.h"
#include "worker/tokenizer/tokenizer.h"

namespace pm {
namespace {

constexpr int32_t byte_tokens = 256, class_id = 256, separator_id = 257, mask_id = 258, vocabulary_size = 259;

bool utf8(std::string_view text) {
  try {
    (void)nlohmann::json(std::string(text)).dump();  // strict
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

void append(std::vector<Token>& tokens, std::string_view text, int32_t sequence) {
  if (!utf8(text)) throw Error(Reason::InvalidRequest, "the text is not UTF-8");
  for (size_t i = 0; i < text.size(); ++i) {
    const bool mask = text.substr(i).starts_with("[MASK]");
    tokens.push_back({mask ? mask_id : static_cast<uint8_t>(text[i]), sequence, sequence, static_cast<int32_t>(i / 5),
                      i, i + (mask ? 6 : 1)});
    if (mask) i += 5;
  }
}

}  // namespace

std::optional<Tokenizer> Tokenizer::find(const std::filesystem::path&, std::string*) {
  Tokenizer made(nullptr);
  made.special_ = {
      .bos = class_id, .eos = separator_id, .unk = 0, .sep = separator_id, .pad = 0, .cls = class_id, .mask = mask_id};
  return made;
}

std::vector<Token> Tokenizer::encode_with_offsets(std::string_view text, bool special) const {
  std::vector<Token> all;
  if (special) all.push_back({.id = class_id});
  append(all, text, 0);
  if (special) all.push_back({.id = separator_id});
  return all;
}

std::vector<Token> Tokenizer::encode_pair(std::string_view first, std::string_view second, bool) const {
  auto all = encode_with_offsets(first);
  append(all, second, 1);
  all.push_back({.id = separator_id, .type = 1});
  return all;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool special) const {
  std::vector<int32_t> ids;
  for (const Token& token : encode_with_offsets(text, special)) ids.push_back(token.id);
  return ids;
}

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  if (token.size() == 1) return static_cast<uint8_t>(token[0]);
  return token == "[MASK]" ? std::optional(mask_id) : std::nullopt;
}

std::string Tokenizer::id_to_token(int32_t id) const {
  return id >= 0 && id < byte_tokens ? std::string(1, static_cast<char>(id)) : id == mask_id ? "[MASK]" : "";
}

std::string Tokenizer::piece(int32_t id) const { return decode({&id, 1}, false); }

std::string Tokenizer::decode(std::span<const int32_t> ids, bool) const {
  std::string text;
  for (int32_t id : ids)
    text += id >= 0 && id < 128           ? std::string(1, static_cast<char>(id))
            : id < byte_tokens && id >= 0 ? "\xEF\xBF\xBD"
                                          : "";
  return text;
}

bool Tokenizer::continues_word(int32_t) const { return false; }

size_t Tokenizer::settled(std::span<const int32_t> ids) const { return ids.size(); }

size_t Tokenizer::vocab_size() const { return vocabulary_size; }

std::shared_ptr<Tokenizer::Constraints> Tokenizer::make_constraints() { return nullptr; }

/// The target constraint compiles them.
TokenMatcher TokenMatcher::compile(const Tokenizer&, ConstraintKind, std::string_view text, bool) {
  if (text.find("refuse") != text.npos) throw Error(Reason::InvalidRequest, "the library does not compile it");
  return {nullptr, nullptr};
}

TokenMatcher TokenMatcher::fork() const { return {nullptr, nullptr}; }

TokenMatcher::Mask TokenMatcher::mask() { return {}; }

bool TokenMatcher::append(int32_t) { return true; }

std::optional<ChatTemplate> ChatTemplate::find(const std::filesystem::path&) { return ChatTemplate(nullptr); }

std::string ChatTemplate::render(std::string_view conversation) const {
  if (conversation.find("refuse") != conversation.npos)
    throw Error(Reason::InvalidRequest, "the template refuses these messages");
  return std::string(conversation.substr(0, 40));
}

bool ReplyParser::is_reasoning() const { return false; }

std::vector<ReplyEvent> ReplyParser::read(std::string_view text, bool) {
  return {{ReplyEvent::Kind::Content, 0, std::string(text)}};
}

ReplyParser ReplyForm::begin(std::string_view, std::string_view, bool) const { return ReplyParser(nullptr); }

std::optional<ReplyForm> ReplyForm::find(const std::filesystem::path&, const std::string&, std::string*) {
  return ReplyForm(nullptr);
}

std::string ReplyForm::grammar(const Tokenizer&, std::string_view request) const { return std::string(request); }

}  // namespace pm

/// Of the crate's C interface, what the decoder of CTC calls; spaces stay.
int tx_strip(const uint8_t* text, size_t len, bool, TxBuf* out, TxBuf*) {
  *out = {new uint8_t[len + 1], len};
  if (len > 0) std::memcpy(out->ptr, text, len);
  return 0;
}
void tx_buf_free(TxBuf buffer) { delete[] buffer.ptr; }
