// SPDX-License-Identifier: Apache-2.0
// Tables that are looked up: embeddings of tokens, positions and learned vectors.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>

#include "worker/comm/communicator.h"
#include "worker/layers/loader.h"

namespace pm::layers {

/// A table whose rows are partitioned over ranks. Each rank looks up its own rows, and the sum over ranks is the
/// result (Megatron's VocabParallelEmbedding).
class Table {
 public:
  Table(const policy::Param&, Loader&);
  /// Looks up [tokens] int64 -> [tokens, width] F32, zero where another rank has the row.
  at::Tensor partial(const at::Tensor& rows) const;

 private:
  at::Tensor of_base(const at::Tensor& rows) const;
  Weight table_;
  Range rows_;
  bool whole_;
  std::shared_ptr<const SavedSite> saved_;  ///< nullptr: no adapter may replace it
};

/// A table of learned vectors, of which every sequence has all.
class LearnedRows {
 public:
  LearnedRows(const policy::Param&, Loader&);
  /// Returns the vectors once for each sequence [sequences x count, width] F32.
  at::Tensor operator()(int64_t sequences, at::Device, comm::Communicator&) const;
  int64_t count() const { return count_; }

 private:
  Table table_;
  int64_t count_;
};

}  // namespace pm::layers
