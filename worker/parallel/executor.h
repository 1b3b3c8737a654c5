// Executes a plan on one rank: the seam between the engine, which decides what runs, and a strategy, which decides where.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "planner/cuts.h"
#include "worker/comm/communicator.h"
#include "worker/models/model.h"

namespace pm::parallel {

/// The best-scored token of each row: on rank 0 [rows] int64, undefined elsewhere.
using Tokens = at::Tensor;

/// One rank's part of a strategy. All ranks call the same functions with the same batch, in the same order.
class Executor {
 public:
  virtual ~Executor() = default;
  /// Throws Error{Request, "InvalidRequest"} for inputs that forward() cannot take; computes nothing. From any thread.
  virtual void check(const Arrays& inputs) const = 0;
  /// One pass without a cache over the inputs of one or more requests; on rank 0 the outputs of each, empty elsewhere.
  virtual std::vector<Arrays> forward(std::span<const Arrays> inputs, const models::Wanted&) = 0;
  /// Copies keys and values of all layers between KV blocks: pairs (from, to).
  virtual void copy_blocks(std::span<const int32_t> pairs) = 0;
  /// One generating step: hidden states after the last layer [tokens, hidden] fp32.
  virtual at::Tensor step(models::StepRows&) = 0;
  virtual bool generates() const = 0;
  /// argmax over the whole vocabulary without gathering it; ties go to the smaller id.
  virtual Tokens greedy(const at::Tensor& hidden) = 0;
  /// All scores on rank 0 [rows, vocabulary] fp32; undefined elsewhere.
  virtual at::Tensor logits(const at::Tensor& hidden) = 0;
  virtual comm::Communicator& communicator() = 0;
  virtual int64_t weight_bytes() const = 0;
  virtual int64_t kv_bytes() const = 0;
};

/// What a rank needs to load its part.
struct Shard {
  const checkpoint::Checkpoint* checkpoint = nullptr;
  const policy::Model* model = nullptr;
  const Cuts* cuts = nullptr;
  DType precision = DType::F32;
  int64_t kv_blocks = 0;
  std::shared_ptr<comm::Communicator> communicator;
  std::function<void(int64_t)> progress;   ///< bytes read so far
};

/// Tensor parallelism: every layer on every rank, cut by heads, FFN columns and vocabulary rows.
std::unique_ptr<Executor> tensor_executor(const Shard&);

}  // namespace pm::parallel
