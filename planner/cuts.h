// How the units of every stack are dealt to the ranks of one tensor group: whole kv groups of heads +-1, FFN columns and
// vocabulary rows so that bytes per rank become equal, which repays uneven heads (ENGINE.md 2). Where kv heads are fewer than ranks, the
// ranks that share one also share out the rows of its projections.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "planner/facts.h"

namespace pm {

/// Half-open range of units [begin, end).
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// The cut of one tensor group of n ranks. A pure function of facts, n and the planned dtype: planner, loader and tests all call deal().
class Cuts {
 public:
  struct Row {
    std::string stack;         ///< "" for Axis::Vocab: tables of equal size are cut alike wherever they are, so tied ones agree
    Axis axis;
    int64_t units;
    std::vector<Range> ranges; ///< one per rank, in rank order; contiguous, covering 0..units (Kv may repeat: heads that several ranks attend to)
  };

  int ranks() const { return ranks_; }
  /// The units of `rank`. Axis::None gives {0, units}. Throws std::out_of_range for a (stack, axis, units) that facts do not have.
  Range range(const std::string& stack, Axis axis, int64_t units, int rank) const;
  const std::vector<Row>& rows() const { return rows_; }
  /// What is held that is neither kept nor quantised.
  DType compute_type() const { return compute_; }
  /// Exact weight bytes of `rank`.
  int64_t weight_bytes(const Facts&, int rank, std::vector<int64_t>* per_part = nullptr) const;

 private:
  friend Cuts deal(const Facts&, int, DType);
  int ranks_ = 1;
  DType dtype_ = DType::F32, compute_ = DType::F32;
  std::vector<Row> rows_;
};

/// Deals facts to n ranks. `dtype` is what parts with keep=false are held in.
/// n from 1 to the largest head count; heads go in whole kv groups while kv_heads >= n, else several ranks attend to one kv head: the heads of
/// its group are split among them, and so are, +-1, the head_dim rows of its key and value projections. Throws std::invalid_argument when a
/// stack has fewer heads than n, or kv rows that are no multiple of its head_dim.
Cuts deal(const Facts&, int n, DType dtype);

}  // namespace pm
