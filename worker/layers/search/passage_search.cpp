// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/search/passage_search.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "worker/ops/linear.h"

namespace pm::layers {

namespace {

/// Rows of a block: 64 KiB of scores for each vector. A block of 768 numbers in F32 is 48 MiB, so that the products of
/// a block take milliseconds and its heap some tens of microseconds.
constexpr int64_t block_rows = int64_t{1} << 14;

/// Puts the scores of passages first, first + 1, ... through a heap whose front is the worst of the best `count`.
void offer(std::vector<ScoredPassage>& best, const float* scores, int64_t rows, int64_t first, size_t count) {
  for (int64_t row = 0; row < rows; ++row) {
    const ScoredPassage one{scores[row], first + row};
    if (best.size() < count) {
      best.push_back(one);
      std::push_heap(best.begin(), best.end());
    } else if (one < best.front()) {
      std::pop_heap(best.begin(), best.end());
      best.back() = one;
      std::push_heap(best.begin(), best.end());
    }
  }
}

}  // namespace

void keep_best(std::vector<ScoredPassage>& candidates, int64_t count) {
  std::sort(candidates.begin(), candidates.end());
  candidates.resize(std::min(candidates.size(), static_cast<size_t>(count)));
}

std::vector<std::vector<ScoredPassage>> search_passages(const at::Tensor& vectors, std::span<const PassageRows> rows,
                                                        int64_t count) {
  std::vector<std::vector<ScoredPassage>> best(static_cast<size_t>(vectors.size(0)));
  if (count < 1) return best;
  for (const PassageRows& part : rows) {
    const int64_t all = part.embeddings.size(0);
    for (int64_t begin = 0; begin < all; begin += block_rows) {
      const int64_t some = std::min(block_rows, all - begin);
      const at::Tensor scores = ops::unrounded_linear(vectors, part.embeddings.narrow(0, begin, some), {})
                                    .to(at::kCPU, at::kFloat)
                                    .contiguous();
      for (size_t text = 0; text < best.size(); ++text)
        offer(best[text], scores.const_data_ptr<float>() + static_cast<int64_t>(text) * some, some, part.first + begin,
              static_cast<size_t>(count));
    }
  }
  for (std::vector<ScoredPassage>& one : best) std::sort_heap(one.begin(), one.end());
  return best;
}

}  // namespace pm::layers
