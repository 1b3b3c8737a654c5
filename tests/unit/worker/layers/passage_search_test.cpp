// SPDX-License-Identifier: Apache-2.0
// The search in blocks of rows equals torch's topk over the whole product, whatever the files and their order.
#include "worker/layers/search/passage_search.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace pm::layers {
namespace {

/// Cuts a table into files of these numbers of rows.
std::vector<PassageRows> files_of(const at::Tensor& table, const std::vector<int64_t>& rows) {
  std::vector<PassageRows> files;
  for (int64_t first = 0; const int64_t count : rows) {
    files.push_back({table.narrow(0, first, count), first});
    first += count;
  }
  return files;
}

TEST(PassageSearch, TheBestOfAllBlocksAndFilesAreFoundForEachVector) {
  at::manual_seed(3);
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    const at::Tensor table = at::randn({40'000, 6}).to(type), vectors = at::randn({3, 6});
    const auto best = search_passages(vectors, files_of(table, {17'000, 1, 22'999}), 9);
    const auto [scores, numbers] = at::topk(at::matmul(vectors, table.to(at::kFloat).t()), 9);
    ASSERT_EQ(best.size(), 3u);
    for (int64_t text = 0; text < 3; ++text) {
      const auto& found = best[static_cast<size_t>(text)];
      ASSERT_EQ(found.size(), 9u);
      for (int64_t i = 0; i < 9; ++i) {
        EXPECT_EQ(found[static_cast<size_t>(i)].number, numbers[text][i].item<int64_t>()) << at::toString(type);
        EXPECT_NEAR(found[static_cast<size_t>(i)].score, scores[text][i].item<float>(), 1e-5);
      }
    }
  }
}

TEST(PassageSearch, OfEqualScoresTheLowerNumberComesFirst) {
  const at::Tensor table = at::ones({20'000, 2});
  const auto best = search_passages(at::ones({1, 2}), files_of(table, {20'000}), 3);
  ASSERT_EQ(best[0].size(), 3u);
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(best[0][static_cast<size_t>(i)].number, i);
}

TEST(PassageSearch, AShardOfFewerRowsGivesAllAndAnEmptyOneNone) {
  const at::Tensor table = at::arange(6, at::kFloat).view({3, 2});
  const auto best = search_passages(at::ones({2, 2}), files_of(table, {3}), 5);
  ASSERT_EQ(best[1].size(), 3u);
  EXPECT_EQ(best[1][0].number, 2);
  EXPECT_TRUE(search_passages(at::ones({1, 2}), files_of(table, {0}), 5)[0].empty());
}

TEST(PassageSearch, CandidatesOfSeveralRanksAreMerged) {
  std::vector<ScoredPassage> candidates{{1, 7}, {3, 2}, {3, 1}, {2, 9}};
  keep_best(candidates, 3);
  ASSERT_EQ(candidates.size(), 3u);
  EXPECT_EQ(candidates[0].number, 1);
  EXPECT_EQ(candidates[1].number, 2);
  EXPECT_EQ(candidates[2].number, 9);
}

}  // namespace
}  // namespace pm::layers
