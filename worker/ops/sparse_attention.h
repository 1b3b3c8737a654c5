// SPDX-License-Identifier: Apache-2.0
// Attention in which a query sees some of the keys only: a window of neighbors and global tokens (Longformer, Beltagy
// et al. 2020), or blocks (BigBird, Zaheer et al. 2020). It runs in blocks of queries, each with the keys that it sees,
// so that time and memory grow with the window and not with the square of the length. It is made of ATen's products,
// for any device.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "worker/ops/attention.h"

namespace pm::ops {

/// Where the tokens of a sequence stand in the padded form of its request. Distances and blocks are those of columns.
struct SequenceColumns {
  int64_t length = 0;                  ///< columns of the padded form
  std::vector<int64_t> columns;        ///< of each token, ascending; empty: 0, 1, ...
  std::vector<int64_t> global_tokens;  ///< the global tokens of a sliding window by their number in the sequence,
                                       ///< ascending
};

/// A query sees the columns at a distance of at most `each_side`, and the global tokens. Global tokens see all tokens.
struct SlidingWindow {
  int64_t each_side = 1;
};

/// The columns are cut into blocks. The first and the last block see all columns. The others see the first and the last
/// block, their own and its neighbors. `random` is the number of further blocks that a block sees; outside of training
/// transformers reads the first block for each of them, so that its keys count 1 + random times. Sequences of at most
/// dense_length() columns see all columns.
struct BlockSparse {
  int64_t block = 64, random = 3;
  constexpr int64_t dense_length() const { return (5 + 2 * random) * block; }
};

struct SparseOptions {
  double scale = 1;
  std::variant<SlidingWindow, BlockSparse> pattern;
};

/// Queries, keys and values of the global tokens' own attention; undefined when no sequence has any.
struct GlobalRows {
  at::Tensor q;     ///< [global tokens of all sequences in order, heads, d]
  at::Tensor k, v;  ///< [tokens, heads, d]
};

/// What one sequence attended to.
struct SparseProbabilities {
  /// BlockSparse: [heads, tokens, tokens], where a key that counts several times has the weight of one of them. Sliding
  /// window: [heads, tokens, global tokens + 2 each_side + 1], the weights of the global tokens, then those of the
  /// window by distance; zero for global tokens, in the window and as queries.
  at::Tensor seen;
  at::Tensor global;  ///< [heads, tokens, global tokens]: what each global token sees; undefined without a window
};

/// q, k, v [tokens, heads, d] fp32 -> [tokens, heads, d]. `columns` has an entry for each sequence; empty: no sequence
/// is padded or has global tokens. With `probabilities`, appends those of each sequence.
at::Tensor sparse_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const GlobalRows& global,
                            std::span<const SequenceSpan> sequences, std::span<const SequenceColumns> columns,
                            const SparseOptions&, std::vector<SparseProbabilities>* probabilities = nullptr);

}  // namespace pm::ops
