// SPDX-License-Identifier: Apache-2.0
// Rows that attend to the rows of another table: learned latents, and the queries that read them.
#pragma once
#include <optional>
#include <vector>

#include "worker/layers/attention.h"
#include "worker/layers/feed_forward/mlp.h"
#include "worker/layers/lookup.h"
#include "worker/policy/spec/cross_block.h"

namespace pm::layers {

/// Attention to other rows, then an MLP. Heads are cut over ranks, so that a rank may have none of a few.
class CrossBlock {
 public:
  CrossBlock(const policy::CrossBlock&, ActivationTypes, Loader&);
  /// Returns the state of each query [rows, width], in F32 outside a device's 16-bit types. `sequences` says which of
  /// `rows` [source rows, source width] those of each sequence see. Attentions are added to the batch's capture.
  at::Tensor operator()(const at::Tensor& queries, const at::Tensor& rows, ops::StepSequences sequences, const Batch&,
                        comm::Communicator&) const;

 private:
  ActivationTypes types_;
  std::optional<Norm> norm_, source_norm_;
  Attention attention_;
  bool adds_queries_;
  std::optional<Norm> mlp_norm_;
  Mlp mlp_;
};

/// Returns the spans of sequences that all have `count` rows.
std::vector<ops::SequenceSpan> equal_spans(size_t sequences, int64_t count);
/// Returns the sequences of queries in which each sees the keys of its counterpart.
ops::StepSequences crossed(const std::vector<ops::SequenceSpan>& queries, const std::vector<ops::SequenceSpan>& keys);

/// The latents of a stack, which read its input.
struct Latents {
  LearnedRows vectors;
  CrossBlock block;
  Latents(const policy::Latents&, ActivationTypes, Loader&);
};

/// What reads the latents behind the last layer.
struct OutputQueries {
  std::optional<LearnedRows> vectors;  ///< absent: the rows of the input
  CrossBlock block;
  OutputQueries(const policy::OutputQueries&, ActivationTypes, Loader&);
};

}  // namespace pm::layers
