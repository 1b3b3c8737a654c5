// SPDX-License-Identifier: Apache-2.0
// Captures and replays decode steps as CUDA graphs: one graph for each bucket of batch sizes. A graph reads only
// tensors at fixed addresses, which one copy fills.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>

#include "worker/comm/communicator.h"
#include "worker/models/model.h"
#include "worker/ops/graph.h"
#include "worker/ops/stream.h"

namespace pm::parallel {

/// The CUDA graphs of one rank. All ranks of a tensor-parallel group run the same buckets in the same order. The first
/// step of a bucket runs eagerly, so that libraries are initialized, and is then captured. Before and after the capture
/// the ranks agree over host memory whether all of them succeeded. When one fails, for lack of memory or because it is
/// disabled, all ranks drop their graphs, and later steps are launched kernel by kernel.
class DecodeGraphs {
 public:
  static constexpr int64_t max_captured_batch = 64;

  /// `max_sequence_length` is in tokens. `enabled` is false when this rank does not capture. `captured` and `replayed`
  /// count buckets and steps.
  DecodeGraphs(at::Device, int64_t max_sequence_length, bool enabled, comm::Communicator& group,
               std::atomic<int64_t>& captured, std::atomic<int64_t>& replayed);
  /// Returns the padded batch size of so many sequences: 1, 2, 4, then multiples of 8.
  static int64_t padded_batch_size(int64_t sequences);
  /// Returns padded_batch_size(), or 0 when capture is disabled or there are too many sequences.
  int64_t bucket_size(int64_t sequences) const;
  /// Returns the hidden states [tokens, hidden] of a decode step of one token per sequence. `step` computes them from
  /// rows at fixed addresses; padding rows have no keys. The result is valid until the next call. Throws
  /// std::logic_error for a step that does not fit the bucket.
  at::Tensor run(models::StepRows&, int64_t bucket_size, const std::function<at::Tensor(models::StepRows&)>& step);

 private:
  struct Bucket {
    at::Tensor host, device;  ///< bytes: tokens, positions, slots [rows] int64, then the sequence metadata of
                              ///< ops/attention_metadata.h
    ops::StreamEvent copied;  ///< after it `host` may be filled again
    models::StepRows rows;    ///< tensors that view `device`
    at::Tensor hidden;
    std::unique_ptr<ops::Graph> graph;
  };
  void make(Bucket&, int64_t bucket_size) const;
  void fill(Bucket&, int64_t bucket_size, const models::StepRows&) const;
  bool run_unless_out_of_memory(const std::function<void()>&) const;
  bool all_ranks_agree(bool mine);
  void disable(int64_t bucket_size);
  const at::Device device_;
  const ops::GraphCapturer capture_;
  const int64_t max_sequence_length_, table_stride_;
  comm::Communicator& group_;
  std::map<int64_t, Bucket> buckets_;
  std::atomic<bool> disabled_{false};
  std::atomic<int64_t>&captured_, &replayed_;
};

}  // namespace pm::parallel
