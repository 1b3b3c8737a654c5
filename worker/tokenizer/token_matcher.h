// SPDX-License-Identifier: Apache-2.0
// Constrained generation: which tokens of a tokenizer may come next so that the text follows a JSON Schema, a regular
// expression, one of several texts or a grammar (worker/tokenizer/ffi/src/constraint.rs).
#pragma once
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "worker/tokenizer/tokenizer.h"

namespace pm {

/// The language of a constraint; the numbers are those of the C ABI.
enum class ConstraintKind : uint32_t {
  JsonSchema = 0,  ///< JSON Schema, draft 2020-12 unless $schema names an earlier one
  Regex = 1,       ///< regular expression of Rust's syntax, which the whole text matches
  Choice = 2,      ///< JSON array of texts, one of which the text is
  Grammar = 3,     ///< context-free grammar of llguidance's Lark syntax
  Reply = 4,       ///< what ReplyForm::grammar() returns
};

/// The state of one text. Used by one thread at a time.
class TokenMatcher {
 public:
  /// Compiles a constraint. `at_start`: the text begins at nothing, where the tokenizer drops a leading space. The
  /// first call for a tokenizer takes longer, because it spells out the vocabulary. Throws Error{InvalidRequest} with
  /// the reason: a syntax error, what is not supported, a limit, or a tokenizer without constraints.
  static TokenMatcher compile(const Tokenizer&, ConstraintKind, std::string_view text, bool at_start);
  TokenMatcher(TokenMatcher&&) noexcept = default;
  TokenMatcher& operator=(TokenMatcher&&) noexcept = default;

  /// Returns a copy that shares no state.
  TokenMatcher fork() const;
  struct Mask {
    std::vector<uint32_t> words;  ///< bit id % 32 of words[id / 32] for each id that may come next
    bool may_end = false;         ///< the text may end here
  };
  /// Returns what may come next. Throws Error{InvalidRequest} when nothing may, or when finding it takes too much.
  Mask mask();
  /// Appends a token that mask() allowed. Returns true if the text ends with it, because nothing may follow. Throws
  /// Error{InvalidRequest} for a token that is not allowed.
  bool append(int32_t id);

  /// Returns what the constraints of a tokenizer share, a TxVocabulary. Throws as compile().
  static std::shared_ptr<void> vocabulary(const Tokenizer& tokenizer) { return tokenizer.constraint_vocabulary(); }

 private:
  TokenMatcher(std::shared_ptr<void> vocabulary, std::shared_ptr<void> handle)
      : vocabulary_(std::move(vocabulary)), handle_(std::move(handle)) {}
  std::shared_ptr<void> vocabulary_, handle_;
};

}  // namespace pm
