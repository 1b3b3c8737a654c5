// SPDX-License-Identifier: Apache-2.0
// Attention in chunks of tokens, in their own order or sorted by hashes (Kitaev et al., "Reformer", 2020). It runs in
// runs of chunks, so that time and memory grow with the length and not with its square. It is made of ATen's products,
// for any device.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace pm::ops {

/// Random rotations. A vector has one bucket of each factor, which are the digits of a number, the first the lowest.
struct HashRotations {
  at::Tensor matrix;             ///< [heads, d, rounds x half of the sum of the factors] fp32
  std::vector<int64_t> factors;  ///< even numbers
  int64_t rounds = 1;
};

/// Draws the rotations of all `heads` by torch's generator on the CPU from `seed`, as transformers does, and returns
/// those of the heads [first, first + count).
HashRotations draw_rotations(int64_t seed, int64_t heads, int64_t d, int64_t rounds, std::vector<int64_t> factors,
                             int64_t first, int64_t count);

/// Hashes vectors [heads, tokens, d] fp32 -> [heads, rounds, tokens] int64.
at::Tensor hash_buckets(const at::Tensor& vectors, const HashRotations&);

/// The tokens of one sequence. A query sees the keys in its chunk and in those next to it that are no padding and, if
/// `causal`, do not stand behind it.
struct ChunkSequence {
  at::Tensor q, k, v;  ///< [tokens, heads, d] fp32; keys are scaled
  at::Tensor columns;  ///< [tokens] int64, ascending: where they stand among `padded` columns
  int64_t padded = 0;  ///< a multiple of `chunk`, or at most one chunk
  int64_t chunk = 1, before = 0, after = 0;
  bool causal = false;
};

/// Attends in the order of columns. Returns [tokens, heads, d].
at::Tensor attend_in_chunks(const ChunkSequence&);
/// Attends in the order of `buckets` [heads, rounds, tokens], in each round of which padding comes last; chunks of a
/// round are next to those of the rounds beside it. Rounds are weighted by the sums of their scores. A query sees
/// itself only where it sees nothing else. Without buckets all tokens are one chunk.
at::Tensor attend_by_hashes(const ChunkSequence&, const at::Tensor& buckets);

/// Attends from the tokens behind the first `known`, each as transformers' cached step does when it is the last token:
/// it sees the tokens before it from the beginning of the chunk on that is `before` chunks ahead of its own. Near the
/// beginning of a sequence it sees as many tokens as chunks are missing, or all. Only q, k, v, `chunk` and `before` are
/// read. Returns [tokens - known, heads, d].
at::Tensor attend_one_by_one(const ChunkSequence&, int64_t known);
/// Likewise in the order of `buckets` [heads, rounds, tokens]: in each round a token is sorted among those before it,
/// and sees its chunk of them and the ones beside it, where the first token comes after the last. Tokens before number
/// `sorted_from` see all tokens before them in one round. `after` is read too.
at::Tensor attend_by_hashes_one_by_one(const ChunkSequence&, const at::Tensor& buckets, int64_t known,
                                       int64_t sorted_from);

}  // namespace pm::ops
