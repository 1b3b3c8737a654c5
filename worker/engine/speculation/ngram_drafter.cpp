// SPDX-License-Identifier: Apache-2.0
// N-gram speculation (prompt lookup): the last tokens of a sequence are looked up in the sequence itself, and what
// followed them there is proposed. Texts that repeat themselves or their prompt profit: code, extracts, edits, chats
// about a document.
#include <algorithm>

#include "worker/engine/speculation/drafter.h"

namespace pm::engine {

namespace {

class NgramDrafter final : public Drafter {
 public:
  explicit NgramDrafter(const NgramLengths& lengths)
      : min_(static_cast<size_t>(lengths.min)), max_(static_cast<size_t>(lengths.max)) {}

  Drafts propose(std::span<const DraftRequest> requests) override {
    Drafts drafts;
    for (const DraftRequest& request : requests)
      drafts.tokens.push_back(continuation(request.tokens, static_cast<size_t>(request.count)));
    return drafts;
  }

 private:
  /// Proposes what followed the latest of the longest occurrences, of at least min_ngram and at most max_ngram tokens.
  /// Where the occurrence overlaps the end, the proposal goes on with itself, as LZ77 copies: a sequence with a period
  /// is continued by it. One pass over the tokens, from the end, which ends at the first of max_ngram tokens.
  std::vector<int32_t> continuation(std::span<const int32_t> tokens, size_t count) const {
    size_t longest = 0, next = 0;  // the proposal begins at token `next`
    for (size_t end = tokens.size(); end-- > 1 && longest < max_;) {
      const size_t most = std::min(max_, end);
      size_t same = 0;
      while (same < most && tokens[end - 1 - same] == tokens[tokens.size() - 1 - same]) ++same;
      if (same > longest) longest = same, next = end;
    }
    std::vector<int32_t> drafts;
    if (longest < min_) return drafts;
    for (size_t at = next; drafts.size() < count; ++at)
      drafts.push_back(at < tokens.size() ? tokens[at] : drafts[at - tokens.size()]);
    return drafts;
  }

  const size_t min_, max_;
};

}  // namespace

std::unique_ptr<Drafter> ngram_drafter(const NgramLengths& lengths) { return std::make_unique<NgramDrafter>(lengths); }

}  // namespace pm::engine
