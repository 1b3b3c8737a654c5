// SPDX-License-Identifier: Apache-2.0
// Exact search by inner product in a rank's shard of an index of passages.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace pm::layers {

/// A passage and its inner product with a text's vector.
struct ScoredPassage {
  float score = 0;
  int64_t number = 0;
  /// Returns whether this one comes first: by score, then by number.
  bool operator<(const ScoredPassage& other) const {
    return score != other.score ? score > other.score : number < other.number;
  }
};

/// Rows of the index that lie beside each other.
struct PassageRows {
  at::Tensor embeddings;  ///< [passages, width], F32, F16 or BF16
  int64_t first = 0;      ///< number of the first passage
};

/// Returns, for each vector, the best `count` passages of these rows, best first; all where there are fewer. Products
/// and sums are F32. The embeddings are read once for up to max_gemv_rows vectors, block by block, so that the scores
/// of a block stay in cache; each block goes through a heap of `count` passages. `vectors`: [texts, width] F32.
std::vector<std::vector<ScoredPassage>> search_passages(const at::Tensor& vectors, std::span<const PassageRows> rows,
                                                        int64_t count);

/// Sorts candidates of several ranks and keeps the best `count`.
void keep_best(std::vector<ScoredPassage>& candidates, int64_t count);

}  // namespace pm::layers
