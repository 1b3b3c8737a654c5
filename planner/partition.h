// SPDX-License-Identifier: Apache-2.0
// Partitions the weights of every stack over the ranks of one tensor-parallel group. Heads go in whole kv groups, with
// at most one group of difference. FFN columns and vocabulary rows balance the bytes per rank, uneven heads included.
// Where kv heads are fewer than ranks, the ranks that share a kv head also partition the rows of its projections.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "planner/model_metadata.h"

namespace pm {

/// Half-open range of units [begin, end).
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// The partition of weights over one tensor group of n ranks. It is a pure function of metadata, n and the planned
/// dtype: planner, loader and tests all call make_partition().
class Partition {
 public:
  struct Row {
    std::string
        stack;  ///< "" for Axis::Vocab: tables of equal size are partitioned alike in every stack, so tied ones agree
    Axis axis;
    int64_t units;
    std::vector<Range> ranges;  ///< one per rank, in rank order; contiguous, covering 0..units (Kv may repeat: heads
                                ///< that several ranks attend to)
    int layout = 0;             ///< Part::layout of Heads, Kv and KvRows; layers of each layout are partitioned alone
  };

  int ranks() const { return ranks_; }
  /// Returns the units of `rank`. Axis::None gives {0, units}. Throws std::out_of_range for a (stack, axis, units,
  /// layout) that the metadata lacks.
  Range range(const std::string& stack, Axis axis, int64_t units, int rank, int layout = 0) const;
  const std::vector<Row>& rows() const { return rows_; }
  /// Returns the dtype of weights that are neither quantised nor held in their stored dtype.
  DType compute_type() const { return compute_; }
  /// Returns the exact weight bytes of `rank`.
  int64_t weight_bytes(const ModelMetadata&, int rank, std::vector<int64_t>* per_part = nullptr) const;

 private:
  friend Partition make_partition(const ModelMetadata&, int, DType);
  int ranks_ = 1;
  DType dtype_ = DType::F32, compute_ = DType::F32;
  std::vector<Row> rows_;
};

/// Partitions the weights over n ranks. `dtype` is the dtype of parts with keep=false. n is between 1 and the largest
/// head count. Heads go in whole kv groups while kv_heads >= n. Otherwise several ranks attend to one kv head: they
/// split the heads of its group, and the head_dim rows of its key and value projections, with at most one of
/// difference. Throws std::invalid_argument when a stack has fewer heads than n, or kv rows that are not a multiple of
/// its head_dim.
Partition make_partition(const ModelMetadata&, int n, DType dtype);

}  // namespace pm
