// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/rows/pooling.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace pm::layers {

PooledRows::PooledRows(const std::vector<ops::SequenceSpan>& all)
    : spans(all), columns(all.size()), tokens(at::arange(count(), at::kLong)) {}

int64_t PooledRows::count() const { return spans.empty() ? 0 : spans.back().first + spans.back().tokens; }

int64_t PooledRows::step() const {
  int64_t least = columns.empty() ? 1 : columns[0].step;
  for (const RowColumns& one : columns) least = std::min(least, one.step);
  return least;
}

RowPairs pool_rows(const policy::Pooling& pooling, const PooledRows& before) {
  RowPairs made;
  std::vector<int64_t> first, second;
  for (size_t i = 0; i < before.spans.size(); ++i) {
    const ops::SequenceSpan& old = before.spans[i];
    ops::SequenceSpan span = old;
    RowColumns columns = before.columns[i];
    span.first = static_cast<int64_t>(first.size());
    const int64_t seen = old.key_row - old.first, seen_end = seen + old.keys;
    int64_t key = -1, keys = 0;
    const auto add = [&](int64_t a, int64_t b) {
      if (a >= seen && b < seen_end) {
        if (key < 0) key = static_cast<int64_t>(first.size());
        ++keys;
      }
      first.push_back(old.first + a);
      second.push_back(old.first + b);
    };
    const bool apart = pooling.class_apart;
    if (old.tokens <= (apart ? 2 : 1)) {
      for (int64_t row = 0; row < old.tokens; ++row) add(row, row);
    } else {
      if (apart) add(0, 0);
      const int64_t end = old.tokens - (apart && pooling.truncate ? 1 : 0);
      for (int64_t row = apart ? 1 : 0; row < end; row += 2) add(row, std::min(row + 1, end - 1));
      // the row apart stands one new step before the others: their distances are multiples of the step then
      if (apart) columns.start -= columns.step;
      columns.step *= 2;
    }
    span.tokens = static_cast<int64_t>(first.size()) - span.first;
    span.keys = keys;
    span.key_row = std::max(key, span.first);
    made.rows.spans.push_back(span);
    made.rows.columns.push_back(columns);
  }
  made.first = at::tensor(first, at::kLong);
  made.second = at::tensor(second, at::kLong);
  made.rows.tokens = at::index_select(before.tokens, 0, made.first);
  return made;
}

at::Tensor pool_states(policy::PoolingKind kind, const RowPairs& pairs, const at::Tensor& states) {
  const at::Tensor x = states.to(at::kFloat), a = at::index_select(x, 0, pairs.first.to(x.device())),
                   b = at::index_select(x, 0, pairs.second.to(x.device()));
  return kind == policy::PoolingKind::Max ? at::maximum(a, b) : (a + b) / 2;
}

at::Tensor upsample_states(const policy::Upsampling& upsampling, const PooledRows& rows, const PooledRows& tokens,
                           const at::Tensor& states) {
  std::vector<int64_t> from;
  const int64_t none = states.size(0);
  for (size_t i = 0; i < rows.spans.size(); ++i) {
    for (int64_t token = 0; token < tokens.spans[i].tokens; ++token) {
      const int64_t row =
          upsampling.class_apart ? (token == 0 ? 0 : 1 + (token - 1) / upsampling.stride) : token / upsampling.stride;
      from.push_back(row < rows.spans[i].tokens ? rows.spans[i].first + row : none);
    }
  }
  const at::Tensor x = states.to(at::kFloat);
  return at::index_select(at::cat({x, at::zeros({1, x.size(1)}, x.options())}), 0,
                          at::tensor(from, at::kLong).to(x.device()));
}

PooledRows rows_before(const policy::Stack& stack, int64_t number, const PooledRows& tokens) {
  PooledRows rows = tokens;
  for (int64_t layer = 0; layer < number; ++layer) {
    const policy::Layer& one = stack.layers[static_cast<size_t>(layer)];
    if (one.upsampling) rows = tokens;
    if (one.pooling) rows = pool_rows(*one.pooling, rows).rows;
  }
  return rows;
}

}  // namespace pm::layers
