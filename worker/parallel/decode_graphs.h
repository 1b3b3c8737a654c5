// SPDX-License-Identifier: Apache-2.0
// Captures and replays decode steps as CUDA graphs: for each bucket of batch sizes a graph of the layers, and graphs
// that choose the tokens. Graphs read only tensors at fixed addresses, which one copy fills (decode_inputs.h).
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "worker/comm/communicator.h"
#include "worker/models/model.h"
#include "worker/ops/graph.h"
#include "worker/ops/sample.h"
#include "worker/ops/stream.h"
#include "worker/parallel/decode_inputs.h"
#include "worker/parallel/generation_executor.h"

namespace pm::parallel {

/// What is known of a rank's CUDA graphs, which may be dropped and captured again. May be read from any thread.
class GraphStatus {
 public:
  std::atomic<int64_t> captured{0};  ///< buckets that are captured now
  std::atomic<int64_t> replayed{0};  ///< steps
  /// Stores why no more steps are captured; the first reason stays.
  void fail(const std::string& reason);
  bool failed() const;
  GraphCounts counts() const;

 private:
  mutable std::mutex mutex_;
  std::string failure_;
};

/// The parts of a decode step, each captured in graphs of its own.
struct DecodeStep {
  /// Returns the hidden states [rows, hidden] of the layers.
  std::function<at::Tensor(models::StepRows&)> hidden;
  /// Return a token for each row [rows] int64: the most likely one, and a sampled one. The tokens are undefined on
  /// ranks that do not learn them. A function is empty where the device cannot choose so.
  std::function<at::Tensor(const at::Tensor& hidden)> greedy;
  std::function<at::Tensor(const at::Tensor& hidden, const ops::SamplingBuffers&)> sample;
};

/// The result of a decode step, valid until the next one.
struct DecodeResult {
  at::Tensor hidden;
  bool has_tokens = false;  ///< graphs chose the tokens
  at::Tensor tokens;        ///< [sequences] int64 in host memory; undefined on ranks that do not learn them
};

/// The CUDA graphs of one rank, which share a memory pool. All ranks of a tensor-parallel group run the same buckets in
/// the same order. The first step of a bucket runs eagerly on the stream of captures, so that libraries have their
/// workspaces, and is then captured. Before and after the capture the ranks agree over host memory whether all of them
/// succeeded. When one fails, because its device cannot capture the step or because graphs are disabled there, all
/// ranks drop their graphs, and later steps are launched kernel by kernel.
class DecodeGraphs {
 public:
  static constexpr int64_t max_captured_batch = 64;

  /// `max_sequence_length` is in tokens. `enabled` is false when this rank does not capture. `status` outlives this.
  DecodeGraphs(at::Device, int64_t max_sequence_length, bool enabled, comm::Communicator& group, GraphStatus& status);
  ~DecodeGraphs();
  DecodeGraphs(const DecodeGraphs&) = delete;
  DecodeGraphs& operator=(const DecodeGraphs&) = delete;
  /// Returns the padded batch size of so many sequences: 1, 2, 4, then multiples of 8.
  static int64_t padded_batch_size(int64_t sequences);
  /// Returns padded_batch_size(), or 0 when capture is disabled or there are too many sequences.
  int64_t bucket_size(int64_t sequences) const;
  /// Runs a decode step of one token per sequence, whose parts read tensors at fixed addresses; padding rows have no
  /// keys. With `samples`, one for each row in order, graphs choose the tokens too, if the device can and the edits
  /// fit; then the host waits for nothing but the tokens. Throws std::logic_error for a step that does not fit the
  /// bucket, and c10::Error when the device has failed.
  DecodeResult run(models::StepRows&, int64_t bucket_size, const DecodeStep&,
                   const ops::SampleBatch* samples = nullptr);

 private:
  struct Bucket {
    std::optional<DecodeInputs> inputs;
    at::Tensor hidden, tokens;  ///< of the graphs; the tokens in pinned host memory, undefined: not learnt here
    std::unique_ptr<ops::Graph> layers, greedy, sample;
  };
  at::Tensor capture(Bucket&, int64_t bucket_size, const models::StepRows&, const DecodeStep&);
  void capture_tokens(Bucket&, const DecodeStep&) const;
  DecodeResult replay(Bucket&, int64_t sequences, const ops::SampleBatch*);
  bool all_ranks_agree(bool mine);
  void disable(int64_t bucket_size, const std::optional<std::string>& reason);
  const at::Device device_;
  const std::unique_ptr<ops::GraphPool> pool_;  ///< nullptr: this rank does not capture
  const int64_t max_sequence_length_;
  comm::Communicator& group_;
  std::map<int64_t, Bucket> buckets_;
  ops::StreamEvent chosen_;  ///< the tokens of a step are in host memory
  std::atomic<bool> disabled_{false};
  GraphStatus& status_;
};

}  // namespace pm::parallel
