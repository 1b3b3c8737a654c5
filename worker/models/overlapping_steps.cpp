// SPDX-License-Identifier: Apache-2.0
#include "worker/models/overlapping_steps.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace pm::models {

namespace {

constexpr int64_t rows_of_a_step = 2;  // beside its target

/// Returns the number of a sequence's row that later steps read of the token in `column`.
int64_t remembered_row(int64_t prompt, int64_t column) {
  return column < prompt - 1 ? column : prompt + rows_of_a_step * (column - (prompt - 1));
}

}  // namespace

void lay_out_overlap(const policy::Recompute::Overlap& overlap, layers::Batch& batch) {
  for (size_t i = 0; i < batch.sequences.spans.size(); ++i) {
    const ops::SequenceSpan& span = batch.sequences.spans[i];
    const int64_t prompt = std::min(batch.prompts[i], span.keys), steps = (span.keys - prompt) / rows_of_a_step;
    const int64_t remembered = overlap.memory > 0 ? std::max<int64_t>(0, overlap.memory - rows_of_a_step) : span.keys;
    std::vector<int64_t> columns;
    for (int64_t column = 0; column < prompt; ++column) columns.push_back(column);
    at::Tensor hidden = at::ones({span.tokens, span.keys}, at::kBool);
    bool* row = hidden.mutable_data_ptr<bool>();
    const auto sees = [&](int64_t key) { row[key] = false; };
    for (int64_t query = 0; query < prompt; ++query, row += span.keys) std::fill(row, row + prompt, false);
    for (int64_t step = 0; step < steps; ++step) {
      const int64_t first = prompt + rows_of_a_step * step, earlier = prompt - 1 + step;
      for (int64_t own = 0; own < rows_of_a_step; ++own, row += span.keys) {
        columns.push_back(earlier + own);
        for (int64_t key = first; key < first + rows_of_a_step; ++key) sees(key);
        for (int64_t column = std::max<int64_t>(0, earlier - remembered); column < earlier; ++column)
          sees(remembered_row(prompt, column));
      }
    }
    if (span.tokens > span.keys) {  // the target sees what the last token sees
      columns.push_back(columns.back() + 1);
      std::copy(row - span.keys, row, row);
    }
    batch.columns.push_back({.length = columns.back() + 1, .columns = std::move(columns), .global_tokens = {}});
    batch.hidden.push_back(hidden);
  }
}

}  // namespace pm::models
