// SPDX-License-Identifier: Apache-2.0
// The rows of sequences whose keys and values begin with a memory of earlier tokens.
#pragma once
#include "worker/layers/rows/pooling.h"

namespace pm::layers {

class MemoryRows {
 public:
  /// Each of the sequences has a memory of `length` rows.
  MemoryRows(const std::vector<ops::SequenceSpan>& sequences, int64_t length);
  const PooledRows& queries() const { return queries_; }
  /// The memory of each sequence, then its own rows.
  const PooledRows& keys() const { return keys_; }
  /// Lays the memories [sequences x length, hidden] and the states [rows, hidden] out as keys() has them, in the type
  /// of the states. Zeros stand for memories that are undefined.
  at::Tensor beside(const at::Tensor& memories, const at::Tensor& states) const;

 private:
  PooledRows queries_, keys_;
  at::Tensor order_;  ///< int64: which of all memories, followed by all states, each row is
};

}  // namespace pm::layers
