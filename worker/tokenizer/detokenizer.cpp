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
  ids_.push_back(id);
  return emit(ids_.size() - read_ >= held_back_bytes);
}

std::string Detokenizer::flush() {
  if (read_ == ids_.size()) return {};
  return emit(true);
}

/// Returns the text of the unread ids, or nothing while it ends inside a character. `complete`: no further ids are
/// awaited.
std::string Detokenizer::emit(bool complete) {
  const std::string known = tokenizer_.decode(std::span(ids_).first(read_));
  const std::string all = tokenizer_.decode(ids_);
  if (!complete && all.ends_with(replacement_character)) return {};
  std::string piece = known.size() < all.size() ? all.substr(known.size()) : std::string();
  read_ = ids_.size();
  if (all.ends_with(replacement_character)) mark_ = read_;  // bytes that form no character must not affect later ids
  if (mark_ == read_ || read_ - mark_ >= context_tokens) {
    ids_.erase(ids_.begin(), ids_.begin() + static_cast<ptrdiff_t>(mark_));
    read_ = mark_ = ids_.size();
  }
  return piece;
}

}  // namespace pm
