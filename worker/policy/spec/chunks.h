// SPDX-License-Identifier: Apache-2.0
// Attention in chunks of tokens, in their own order or in that of hashes.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

namespace pm::policy {

/// Locality-sensitive hashing (Andoni et al. 2015; Kitaev et al., "Reformer", 2020). A vector is rotated at random; its
/// bucket is the axis, with its sign, to which it comes nearest. Tokens are sorted by buckets before they are cut into
/// chunks, once for each round.
struct Hashes {
  int64_t rounds = 1;
  std::vector<int64_t> buckets;  ///< even numbers; several: a vector has a bucket of each, and of their product in all;
                                 ///< empty: from the length of each sequence, as buckets_of() says
  int64_t seed = 0;              ///< of the generator that draws the rotations, again for each layer
  int64_t positions = 0;         ///< the most that the model was made for; it bounds a number of buckets before it is
                                 ///< cut in two

  /// Returns the buckets for a sequence of `length` tokens and chunks of `chunk`: a power of 2, about twice the number
  /// of chunks, or two factors of it.
  std::vector<int64_t> buckets_of(int64_t length, int64_t chunk) const;
};

/// A query sees the tokens of its own chunk, of `before` chunks and of `after` chunks; the first chunk comes after the
/// last. Sequences of at most one chunk are seen as a whole.
struct Chunks {
  int64_t length = 64, before = 1, after = 0;
  std::optional<Hashes> hashes;  ///< tokens are sorted by hashes of their queries, which are normed to be keys too
  int64_t multiple = 64,         ///< sequences of more than `shortest` tokens are padded to a multiple of this: of the
      shortest = 64;             ///< chunks of all layers of the stack

  /// Returns the length to which a sequence is padded.
  int64_t padded(int64_t tokens) const;
};

}  // namespace pm::policy
