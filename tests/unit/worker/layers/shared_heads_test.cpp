// SPDX-License-Identifier: Apache-2.0
// Keys and values of kv heads that ranks share: every rank gets the rows of its own heads, whoever made them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

#include "worker/layers/attention.h"

namespace pm::layers {
namespace {

constexpr int64_t tokens = 3;

/// What the projection of a row says for a token: no two alike.
double value(bool is_value, int64_t row, int64_t token) {
  return (is_value ? 1000 : 0) + 10 * static_cast<double>(row) + static_cast<double>(token);
}

/// Columns of keys for `rows`, then those of values.
at::Tensor columns(Range rows) {
  at::Tensor all = at::empty({tokens, 2 * rows.size()});
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < rows.size(); ++i) {
      all[t][i] = value(false, rows.begin + i, t);
      all[t][rows.size() + i] = value(true, rows.begin + i, t);
    }
  }
  return all;
}

/// `own` of every rank: what it should have afterwards.
void expect_exchanged(const std::vector<Range>& rows, const std::vector<Range>& own) {
  const auto group = comm::in_process(static_cast<int>(rows.size()), std::chrono::seconds(60));
  std::vector<at::Tensor> got(rows.size());
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    ranks.emplace_back([&, rank] {
      const SharedHeads shared(rows, own[rank], static_cast<int>(rank), at::kCPU);
      // as they lie behind the queries: not contiguous
      const at::Tensor beside = at::cat({at::full({tokens, 7}, -1.0), columns(rows[rank])}, 1);
      got[rank] = shared.exchanged(beside.narrow(1, 7, 2 * rows[rank].size()), *group[rank]);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (size_t rank = 0; rank < rows.size(); ++rank)
    EXPECT_TRUE(at::equal(got[rank], columns(own[rank]))) << "rank " << rank << "\n" << got[rank];
}

TEST(SharedHeads, OneHeadIsPutTogetherFromUnevenParts) {
  expect_exchanged({{0, 3}, {3, 5}, {5, 7}}, {{0, 7}, {0, 7}, {0, 7}});
}

TEST(SharedHeads, EachRankGetsTheHeadsThatItAttendsTo) {
  expect_exchanged({{0, 3}, {3, 5}, {5, 8}, {8, 10}}, {{0, 5}, {0, 5}, {5, 10}, {5, 10}});
}

TEST(SharedHeads, AHeadMayBeOneRanksAlone) { expect_exchanged({{0, 2}, {2, 4}, {4, 8}}, {{0, 4}, {0, 4}, {4, 8}}); }

TEST(SharedHeads, RanksWithoutRowsGetTheOthers) {
  expect_exchanged({{0, 1}, {1, 2}, {2, 2}, {2, 2}}, {{0, 2}, {0, 2}, {0, 2}, {0, 2}});
}

TEST(SharedHeads, RowsThatNoRankHoldsAreAMistake) {
  EXPECT_THROW(SharedHeads({{0, 2}, {2, 3}}, {0, 4}, 1, at::kCPU), std::logic_error);
}

}  // namespace
}  // namespace pm::layers
