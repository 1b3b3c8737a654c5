// SPDX-License-Identifier: Apache-2.0
// Incremental detokenization over a window of ids. The text of an id depends on its neighbours (bytes of one character,
// a leading space that a decoder drops). So a new id is decoded together with the previous ones, and the known text is
// removed.
#include <algorithm>

#include "worker/tokenizer/tokenizer.h"

namespace pm {
namespace {

/// Number of context ids before the unread ones: more than a character of four byte tokens.
constexpr size_t context_tokens = 6;
/// A character has at most four bytes, so that a tail this long which still ends in U+FFFD never becomes a character.
constexpr size_t held_back_bytes = 16;
constexpr std::string_view replacement_character = "\xEF\xBF\xBD";

}  // namespace

Detokenizer::Detokenizer(const Tokenizer& tokenizer, std::span<const int32_t> before) : tokenizer_(tokenizer) {
  if (tokenizer.decodes_as_a_whole()) {
    ids_.assign(before.begin(), before.end());
    read_ = ids_.size();
    return;
  }
  size_t keep = std::min(before.size(), context_tokens);
  // Byte-fallback decoders turn a whole run of byte tokens into U+FFFD when it starts inside a character.
  while (keep < std::min(before.size(), context_tokens + 3) &&
         tokenizer.decode(before.last(keep)).starts_with(replacement_character))
    ++keep;
  ids_.assign(before.end() - static_cast<ptrdiff_t>(keep), before.end());
  read_ = mark_ = keep;
  // A prompt of ids may end inside a character, which the stream then completes: those ids count as unread.
  for (size_t back = 0; back < std::min<size_t>(keep, 4); ++back)
    if (!tokenizer.decode(std::span(ids_).first(keep - back)).ends_with(replacement_character)) {
      read_ = mark_ = keep - back;
      break;
    }
}

std::string Detokenizer::push(int32_t id) {
  if (tokenizer_.continues_word(id))
    inside_word_ = true;
  else if (inside_word_)
    inside_word_ = tokenizer_.decode({&id, 1}).empty();
  ids_.push_back(id);
  if (tokenizer_.decodes_as_a_whole()) return emit_first(tokenizer_.settled(ids_));
  return emit(ids_.size() - read_ >= held_back_bytes);
}

std::string Detokenizer::flush() {
  if (tokenizer_.decodes_as_a_whole()) return emit_first(ids_.size());
  std::string rest;
  if (read_ != ids_.size()) rest = emit(true);
  if (inside_word_) rest += Tokenizer::continuation_mark;
  inside_word_ = false;
  return rest;
}

/// Returns the text of the ids before `count` that are not emitted yet. The window holds all ids.
std::string Detokenizer::emit_first(size_t count) {
  if (count <= read_) return {};
  const std::string known = tokenizer_.decode(std::span(ids_).first(read_));
  const std::string all = tokenizer_.decode(std::span(ids_).first(count));
  read_ = count;
  return known.size() < all.size() ? all.substr(known.size()) : std::string();
}

/// Returns whether the last of the first `count` ids that is shown continues in the next one.
bool Detokenizer::ends_inside_word(size_t count) const {
  for (size_t i = count; i > 0; --i) {
    if (tokenizer_.continues_word(ids_[i - 1])) return true;
    if (!tokenizer_.decode(std::span(ids_).subspan(i - 1, 1)).empty()) return false;
  }
  return false;
}

/// Returns the text of the first `count` ids without the mark of an unfinished word, which the next id removes.
std::string Detokenizer::text(size_t count) const {
  std::string text = tokenizer_.decode(std::span(ids_).first(count));
  if (text.ends_with(Tokenizer::continuation_mark) && ends_inside_word(count))
    text.resize(text.size() - Tokenizer::continuation_mark.size());
  return text;
}

/// Returns the text of the unread ids, or nothing while it ends inside a character. `complete`: no further ids are
/// awaited.
std::string Detokenizer::emit(bool complete) {
  const std::string known = text(read_);
  const std::string all = text(ids_.size());
  if (!complete && all.ends_with(replacement_character)) return {};
  std::string piece = known.size() < all.size() ? all.substr(known.size()) : std::string();
  read_ = ids_.size();
  if (all.ends_with(replacement_character)) mark_ = read_;  // bytes that form no character must not affect later ids
  // Context that shows nothing, such as special tokens, would make the next id look like the start of the text.
  const auto shows_context = [&] { return !tokenizer_.decode(std::span(ids_).subspan(mark_)).empty(); };
  if (mark_ == read_ || (read_ - mark_ >= context_tokens && shows_context())) {
    ids_.erase(ids_.begin(), ids_.begin() + static_cast<ptrdiff_t>(mark_));
    read_ = mark_ = ids_.size();
  }
  return piece;
}

}  // namespace pm
