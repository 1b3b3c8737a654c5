// SPDX-License-Identifier: Apache-2.0
// Speculative decoding: a drafter proposes tokens that may come next in a sequence, one step computes the rows of all
// of them, and those that the sampler chooses too are kept. A drafter changes how fast tokens come, never which.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace pm::engine {

/// How tokens are drafted: n-gram speculation, also known as prompt lookup.
struct Speculation {
  int64_t tokens = 8;                    ///< most drafts of a sequence in a step
  int64_t min_ngram = 2, max_ngram = 4;  ///< tokens at the end of a sequence that are looked up in it
  bool operator==(const Speculation&) const = default;
};

/// Proposes tokens. Called by one thread. Every call has all tokens of a sequence, so that nothing has to be undone
/// when one is computed again, forks or ends.
class Drafter {
 public:
  virtual ~Drafter() = default;
  /// Returns up to `count` tokens that may follow `tokens`, prompt and answer so far; fewer, or none, where it has no
  /// guess. They must be ids of the vocabulary.
  virtual std::vector<int32_t> propose(std::span<const int32_t> tokens, int64_t count) = 0;
};

std::unique_ptr<Drafter> make_drafter(const Speculation&);

}  // namespace pm::engine
