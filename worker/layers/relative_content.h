// SPDX-License-Identifier: Apache-2.0
// Attention to relative positions by content: the table of a stack, and what each layer makes of its rows.
#pragma once
#include <optional>

#include "worker/layers/input.h"
#include "worker/layers/layers.h"
#include "worker/policy/spec/attention.h"

namespace pm::layers {

/// The table of relative positions of a stack. Ranks share its rows.
class RelativeTable {
 public:
  RelativeTable(const policy::RelativeContent&, Loader&);
  /// Returns the rows that the distances of a batch's tokens read, the same on every rank, and which distance reads
  /// which.
  RelativeRows operator()(const Batch&, at::Device, comm::Communicator&) const;

 private:
  Table table_;
  std::optional<Norm> norm_;
  int64_t span_, max_distance_;
};

/// One layer's projections of the rows, by its own linears or by the block's.
class RelativeTerms {
 public:
  RelativeTerms(const policy::RelativeContent&, Loader&);
  /// Returns whether the rows have to go through the block's projections.
  bool shares() const;
  /// Returns the terms of this rank's heads. `shared` has the rows through the block's projections: queries, keys and
  /// values of the local heads side by side; undefined where shares() is false.
  ops::RelativeContent operator()(const RelativeRows&, const at::Tensor& shared, int64_t heads, int64_t head_dim) const;

 private:
  struct Term {
    bool present, shared;
    std::optional<ColumnLinear> projection;
    Term(const std::optional<policy::RelativeContent::Term>&, Loader&);
  };
  at::Tensor projected(const Term&, const at::Tensor& rows, const at::Tensor& shared, int64_t first, int64_t heads,
                       int64_t head_dim) const;
  Term key_, query_;
};

/// Returns the row that each distance query - key reads, int64 -> int64. With `max_distance`, distances of up to
/// span / 2 have rows of their own, and those beyond it share rows logarithmically (DeBERTa-v2).
at::Tensor relative_rows(const at::Tensor& distance, int64_t span, int64_t max_distance);

}  // namespace pm::layers
