// SPDX-License-Identifier: Apache-2.0
// What the rows of steps that overlap see, against steps that hand their rows on one after another.
#include "worker/models/overlapping_steps.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <set>
#include <utility>

namespace pm::models {
namespace {

/// A row: the number of its step, and its column.
using Row = std::pair<int64_t, int64_t>;

/// What the rows of each step see, by the definition: a step reads its two last tokens, or the prompt, and what is
/// handed on: the rows of all steps so far, the last `memory` of them, but for the last token and the target.
std::vector<std::pair<Row, std::set<Row>>> seen(int64_t prompt, int64_t length, int64_t memory) {
  std::vector<std::pair<Row, std::set<Row>>> rows;
  std::vector<Row> handed;
  for (int64_t tokens = prompt; tokens <= length; ++tokens) {
    const int64_t step = tokens - prompt;
    std::vector<Row> own;
    for (int64_t column = step == 0 ? 0 : tokens - 2; column < tokens; ++column) own.emplace_back(step, column);
    std::set<Row> all(handed.begin(), handed.end());
    all.insert(own.begin(), own.end());
    for (const Row& row : own) rows.emplace_back(row, all);
    if (tokens == length) rows.emplace_back(Row{step, tokens}, all);
    handed.insert(handed.end(), own.begin(), own.end());
    handed.emplace_back(step, tokens);
    if (memory > 0 && std::cmp_greater(handed.size(), memory)) handed.erase(handed.begin(), handed.end() - memory);
    handed.resize(handed.size() < 2 ? 0 : handed.size() - 2);
  }
  return rows;
}

TEST(OverlappingSteps, RowsSeeWhatEarlierStepsHandOn) {
  for (const int64_t memory : {0, 1, 2, 3, 4, 7, 40})
    for (const auto& [prompt, length] : {std::pair<int64_t, int64_t>{1, 1}, {1, 6}, {2, 3}, {5, 5}, {5, 12}, {9, 10}}) {
      const auto wanted = seen(prompt, length, memory);
      layers::Batch batch;
      const auto count = static_cast<int64_t>(wanted.size());
      for (int64_t sequence = 0; sequence < 2; ++sequence) {
        batch.sequences.spans.push_back({.first = sequence * count,
                                         .tokens = count,
                                         .context = 0,
                                         .keys = count - 1,
                                         .key_row = sequence * count,
                                         .blocks = {}});
        batch.prompts.push_back(prompt);
      }
      lay_out_overlap({.memory = memory}, batch);
      ASSERT_EQ(batch.columns.size(), 2U);
      for (size_t sequence = 0; sequence < 2; ++sequence) {
        const auto& columns = batch.columns[sequence].columns;
        EXPECT_EQ(batch.columns[sequence].length, length + 1);
        ASSERT_EQ(columns.size(), wanted.size());
        ASSERT_THAT(batch.hidden[sequence].sizes(), testing::ElementsAre(count, count - 1));
        for (size_t query = 0; query < wanted.size(); ++query) {
          EXPECT_EQ(columns[query], wanted[query].first.second);
          std::set<Row> sees;
          for (size_t key = 0; key + 1 < wanted.size(); ++key)
            if (!batch.hidden[sequence][static_cast<int64_t>(query)][static_cast<int64_t>(key)].item<bool>())
              sees.insert(wanted[key].first);
          EXPECT_EQ(sees, wanted[query].second)
              << "row " << query << " of a prompt of " << prompt << " with a memory of " << memory;
        }
      }
    }
}

TEST(OverlappingSteps, AStepWithoutATargetHasItsTokensAlone) {
  layers::Batch batch;
  batch.sequences.spans.push_back({.first = 0, .tokens = 4, .context = 0, .keys = 4, .key_row = 0, .blocks = {}});
  batch.prompts = {4};
  lay_out_overlap({.memory = 0}, batch);
  EXPECT_THAT(batch.columns[0].columns, testing::ElementsAre(0, 1, 2, 3));
  EXPECT_FALSE(batch.hidden[0].any().item<bool>());
}

}  // namespace
}  // namespace pm::models
