// Incremental decoding over a window of ids. What one id means depends on its neighbours (bytes of one character, a leading
// space that a decoder drops), so a new id is decoded together with the last ones and the text known before is cut off.
#include <algorithm>

#include "worker/tokenizer/tokenizer.h"

namespace pm {
namespace {

/// Ids of context kept before the unread ones: more than a character of four byte tokens.
constexpr size_t kContext = 6;
/// A character has at most four bytes, so a tail this long that still ends in U+FFFD is no character and never becomes one.
constexpr size_t kHeldBack = 16;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace

Detokenizer::Detokenizer(const Tokenizer& tokenizer, std::span<const int32_t> before) : tokenizer_(tokenizer) {
  size_t keep = std::min(before.size(), kContext);
  // byte-fallback decoders turn a whole run of byte tokens into U+FFFD when it starts inside a character
  while (keep < std::min(before.size(), kContext + 3) && tokenizer.decode(before.last(keep)).starts_with(kReplacement)) ++keep;
  ids_.assign(before.end() - static_cast<ptrdiff_t>(keep), before.end());
  read_ = mark_ = keep;
  // a prompt given as ids may end inside a character, which the stream then completes: those ids count as unread
  for (size_t back = 0; back < std::min<size_t>(keep, 4); ++back)
    if (!tokenizer.decode(std::span(ids_).first(keep - back)).ends_with(kReplacement)) {
      read_ = mark_ = keep - back;
      break;
    }
}

std::string Detokenizer::push(int32_t id) {
  ids_.push_back(id);
  return emit(ids_.size() - read_ >= kHeldBack);
}

std::string Detokenizer::flush() {
  if (read_ == ids_.size()) return {};
  return emit(true);
}

/// Text of the unread ids, or nothing while it ends inside a character. `complete`: nothing more is waited for.
std::string Detokenizer::emit(bool complete) {
  const std::string known = tokenizer_.decode(std::span(ids_).first(read_));
  const std::string all = tokenizer_.decode(ids_);
  if (!complete && all.ends_with(kReplacement)) return {};
  std::string piece = known.size() < all.size() ? all.substr(known.size()) : std::string();
  read_ = ids_.size();
  if (all.ends_with(kReplacement)) mark_ = read_;   // bytes that are no character must not spoil what follows
  if (mark_ == read_ || read_ - mark_ >= kContext) {
    ids_.erase(ids_.begin(), ids_.begin() + static_cast<ptrdiff_t>(mark_));
    read_ = mark_ = ids_.size();
  }
  return piece;
}

}  // namespace pm
