// SPDX-License-Identifier: Apache-2.0
// Declares what an executor offers for generation: steps over a KV cache, and tokens from their hidden states. Executor
// returns the parts that a rank has.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

#include "worker/models/model.h"
#include "worker/ops/sample.h"

namespace pm::parallel {

/// The argmax or the sampled token of each row: [rows] int64, on the device of the executor.
using Tokens = at::Tensor;

/// CUDA graph counts since the KV blocks were made (decode_graphs.h): captured buckets and replayed steps. `failure`
/// says why no steps are captured any more; it is empty unless a capture has failed.
struct GraphCounts {
  int64_t captured = 0, replayed = 0;
  std::string failure;
};

/// Steps of generation, over a KV cache where the model has one.
class GenerationExecutor {
 public:
  /// Returns false if a step has whole sequences, which need no KV blocks. May be called from any thread.
  virtual bool caches() const { return true; }
  /// Frees the KV blocks and allocates `blocks` empty ones; 0 allocates none. Must be called between steps.
  virtual void make_blocks(int64_t blocks) = 0;
  /// Copies keys and values of all layers between KV blocks: pairs (from, to).
  virtual void copy_blocks(std::span<const int32_t> pairs) = 0;
  /// Copies the states that recurrent layers keep of sequences: pairs (from, to) of slots.
  virtual void copy_states(std::span<const int32_t> /*pairs*/) {}
  /// Runs one generation step. Returns the hidden states after the last layer, [tokens, hidden] F32, on all ranks of
  /// the last stage.
  virtual at::Tensor step(models::StepRows&) = 0;
  /// Runs a decode step for which bucket() returned a size, and chooses the token of each of its sequences, on the
  /// device: `samples` has one for each row, in order. Returns the tokens [sequences] int64 in host memory; undefined
  /// on ranks that do not learn them. Throws std::logic_error where bucket() returns 0.
  virtual Tokens decode(models::StepRows&, const ops::SampleBatch& /*samples*/) {
    throw std::logic_error("this executor captures no decode steps; call step()");
  }
  /// Returns the encoder's rows for one input of images or audio. May be called from any thread. Throws
  /// Error{InvalidRequest} naming the tensor and its defect; std::logic_error where the encoder reads tokens.
  virtual models::StackInput source_input(const Arrays&) const {
    throw std::logic_error("this executor has no encoder of images or audio");
  }
  /// Returns the CUDA graph bucket (padded batch size) of a decode step with one token for each of `sequences`
  /// sequences, or 0 to launch kernel by kernel. Rank 0 decides, and the step message tells all ranks.
  virtual int64_t bucket(int64_t /*sequences*/) const { return 0; }
  /// May be called from any thread.
  virtual GraphCounts graphs() const { return {}; }

 protected:
  ~GenerationExecutor() = default;
};

/// Logits and tokens from the hidden states of the last stage. All its ranks call the same functions.
class SamplingExecutor {
 public:
  /// Returns the argmax over the whole vocabulary without gathering the logits; ties go to the smaller id.
  virtual Tokens greedy(const at::Tensor& hidden) = 0;
  /// Returns all logits, [rows, vocabulary] F32.
  virtual at::Tensor logits(const at::Tensor& hidden) = 0;

 protected:
  ~SamplingExecutor() = default;
};

/// Samples on the device that has the logits.
class DeviceSampler {
 public:
  /// Samples tokens from the logits of these states, one per entry of the batch.
  virtual Tokens sample(const at::Tensor& hidden, const ops::SampleBatch&) = 0;

 protected:
  ~DeviceSampler() = default;
};

}  // namespace pm::parallel
