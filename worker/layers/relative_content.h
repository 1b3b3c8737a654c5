// SPDX-License-Identifier: Apache-2.0
// Attention to relative positions by content: the table of a stack, and what each layer makes of its rows.
#pragma once
#include <optional>

#include "worker/layers/input.h"
#include "worker/layers/layers.h"
#include "worker/layers/rows/pooling.h"
#include "worker/policy/spec/attention.h"

namespace pm::layers {

/// The rows of relative positions of a stack: those of a table, which ranks share, or sinusoids of the distance. Where
/// layers have vectors of distances there are no rows, and it says which vector each distance reads.
class RelativeTable {
 public:
  /// `hidden` is the width of the rows.
  RelativeTable(const policy::RelativeContent&, int64_t hidden, Loader&);
  /// Returns the rows that the distances of a batch's tokens read, the same on every rank, which distance reads which,
  /// and the segments of the tokens.
  RelativeRows operator()(const Batch&, at::Device, comm::Communicator&) const;
  /// Returns the same for a layer whose queries and keys are these rows, made of the batch's tokens.
  RelativeRows operator()(const PooledRows& queries, const PooledRows& keys, const Batch&, at::Device,
                          comm::Communicator&) const;

 private:
  RelativeRows rows(std::vector<ops::RelativeSequence>, int64_t step, at::Device, comm::Communicator&) const;
  std::optional<Table> table_;
  std::optional<Norm> norm_;
  int64_t hidden_, span_, max_distance_;
  bool class_apart_, vectors_;  ///< vectors: of layers, which have them
  std::string segments_;        ///< the input that numbers the segments; "": there are none
};

/// One layer's projections of the rows, by its own linears or by the block's; or its vectors of distances, which every
/// rank holds, for all heads read them.
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
    Weight query_bias;
    Term(const std::optional<policy::RelativeContent::Term>&, Loader&);
  };
  at::Tensor projected(const Term&, const at::Tensor& rows, const at::Tensor& shared, int64_t first, int64_t heads,
                       int64_t head_dim) const;
  Weight vectors_;
  bool vectors_meet_keys_ = false;
  double factor_ = 1;  ///< of the vectors
  Term key_, query_;
  Weight content_bias_, segments_, segment_bias_;  ///< in the order in which they are used
  bool others_first_ = false;
  std::optional<int64_t> common_segment_;
};

/// Returns the row of a table that each distance query - key reads, int64 -> int64. With `max_distance`, distances of
/// up to span / 2 have rows of their own, and those beyond it share rows logarithmically (DeBERTa-v2).
at::Tensor relative_rows(const at::Tensor& distance, int64_t span, int64_t max_distance);
/// Returns the sines, then the cosines of distances [rows] int64 -> [rows, hidden] F32, at the frequencies 10000^(-2i /
/// hidden) (Dai et al. 2019).
at::Tensor relative_sinusoids(const at::Tensor& distance, int64_t hidden);

}  // namespace pm::layers
