// SPDX-License-Identifier: Apache-2.0
// The rows of sequences whose layers pool them, or make them as many as tokens again: how many there are, where they
// stand and which of them are keys.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "worker/ops/attention.h"
#include "worker/policy/spec/stack.h"

namespace pm::layers {

/// Where the rows of one sequence stand: row i in the column start + step * i of its text.
struct RowColumns {
  int64_t start = 0, step = 1;
};

/// The rows of all sequences at one place of a stack. `keys` and `key_row` of a span are the rows that are no padding.
struct PooledRows {
  std::vector<ops::SequenceSpan> spans;
  std::vector<RowColumns> columns;  ///< of each span
  at::Tensor tokens;                ///< int64 [rows]: the batch's number of the first token that a row was made of

  /// Rows that are tokens, in their order.
  explicit PooledRows(const std::vector<ops::SequenceSpan>& all);
  PooledRows() = default;
  /// Returns the number of all rows.
  int64_t count() const;
  /// Returns the least step of a sequence. It divides all others, and all distances of rows.
  int64_t step() const;
};

/// Rows, and the two rows of which each was made: int64 [rows], numbers of rows before; the same where it was one.
struct RowPairs {
  PooledRows rows;
  at::Tensor first, second;
};

/// Returns what the pooling makes of rows. A row is padding where one of its pair is. Formula: transformers'
/// FunnelAttentionStructure.
RowPairs pool_rows(const policy::Pooling&, const PooledRows& before);
/// Returns the states of pairs: [rows before, hidden] -> [rows, hidden] in F32.
at::Tensor pool_states(policy::PoolingKind, const RowPairs&, const at::Tensor& states);
/// Returns states for all tokens: [rows, hidden] -> [tokens, hidden] in F32; zero where truncation left no row.
at::Tensor upsample_states(const policy::Upsampling&, const PooledRows& rows, const PooledRows& tokens,
                           const at::Tensor& states);
/// Returns the rows that reach the layer `number` of a stack, before its own pooling or upsampling.
PooledRows rows_before(const policy::Stack&, int64_t number, const PooledRows& tokens);

}  // namespace pm::layers
