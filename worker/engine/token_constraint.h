// SPDX-License-Identifier: Apache-2.0
// The interface of constrained generation: which tokens may come next in a sequence. The server implements it with the
// tokenizer's grammars.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

namespace pm::engine {

/// The token ids that may come next.
struct TokenMask {
  std::vector<uint32_t> words;  ///< bit id % 32 of word id / 32; ids beyond are not allowed
  bool may_end = false;         ///< true: the sequence may end here; end tokens are allowed then, and only then
  /// Where the allowed ids from here on are together more probable than each of the allowed ids before, only they are
  /// allowed; -1: no such ids.
  int32_t joint_from = -1;

  bool allows(int64_t id) const {
    const auto word = static_cast<size_t>(id) / 32;
    return word < words.size() && (words[word] >> (id % 32) & 1) != 0;
  }
};

/// The constraint of one sequence with its state after the tokens so far. Used by one thread at a time.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  /// Returns a constraint of its own with the same state. Throws std::exception.
  virtual std::unique_ptr<TokenConstraint> fork() const = 0;
  /// Returns the mask of the next token. Throws std::exception with the reason when there is none, or when computing it
  /// takes too much.
  virtual TokenMask next() = 0;
  /// Returns whether the last next() allowed the end; false after append().
  virtual bool may_end() const = 0;
  /// Appends a token that is no end token. Returns true if the sequence ends with it, because no token may follow.
  /// Throws std::exception if the constraint does not allow the token.
  virtual bool append(int32_t id) = 0;
};

}  // namespace pm::engine
