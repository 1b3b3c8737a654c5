// SPDX-License-Identifier: Apache-2.0
// Declares the executor of a plan on one rank. The engine decides what runs; the executor, one per strategy, decides
// where.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "planner/plan.h"
#include "worker/comm/communicator.h"
#include "worker/layers/adapters/adapter_slots.h"
#include "worker/models/model.h"
#include "worker/parallel/generation_executor.h"

namespace pm::parallel {

/// The calls that a step makes on a rank.
struct StepRequirements {
  bool tokens = false, source = false;  ///< step() is called; it also has rows of an encoder
  bool best = false;                    ///< greedy() is called
  int64_t scores = 0;                   ///< calls of logits() and sample()
  int64_t bucket = 0;                   ///< the value of bucket() on rank 0
  std::span<const Arrays> inputs;       ///< inputs of forward(); empty when it is not called
  models::OutputSelection wanted;
};

class Executor;

/// A step of an executor, on every rank: Executor::begin() begins it, and the end of the scope finishes it. FSDP ranks
/// wait for each other at both, so the destructor throws what finishing throws. A step that ends by an exception is
/// abandoned instead, because other ranks may never get to its end.
class StepScope {
 public:
  ~StepScope() noexcept(false);
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;

 private:
  friend Executor;
  StepScope(Executor&, const StepRequirements&);
  Executor& executor_;
  const int exceptions_;  ///< in flight when the step began
};

/// The part of a strategy on one rank. All ranks of a data-parallel rank call the same functions with the same batches,
/// in the same order; a pipeline stage may run ahead of later stages. Results come out on tensor-parallel rank 0 of the
/// last stage and are empty or undefined elsewhere.
class Executor {
 public:
  virtual ~Executor() = default;
  /// Throws Error{InvalidRequest} for inputs that forward() cannot take; computes nothing. May be called
  /// from any thread.
  virtual void check(const Arrays& inputs) const = 0;
  /// Begins a step, which encloses the calls that compute. FSDP ranks agree on the weights that any of them needs and
  /// take part in the all-gathers, with or without work of their own.
  [[nodiscard]] StepScope begin(const StepRequirements& requirements) { return {*this, requirements}; }
  /// Runs one forward pass without a KV cache over the inputs of one or more requests; returns the outputs of each.
  virtual std::vector<Arrays> forward(std::span<const Arrays> inputs, const models::OutputSelection&) = 0;
  /// Returns the steps of generation; nullptr when the model does not generate. May be called from any thread.
  virtual GenerationExecutor* generation() = 0;
  /// Returns the logits and tokens of steps; nullptr when the model does not generate and before the last stage.
  virtual SamplingExecutor* sampling() = 0;
  /// Returns the sampler of the device; nullptr when it has none. The same on all stages, used on the last.
  virtual DeviceSampler* device_sampler() { return nullptr; }
  /// Returns the communicator of the tensor-parallel group, or of all ranks that gather weights.
  virtual comm::Communicator& communicator() = 0;
  /// Returns the device of the tensors. Batches come from the CPU; logits go back there.
  virtual at::Device device() const { return at::kCPU; }
  virtual int64_t weight_bytes() const = 0;
  virtual int64_t kv_bytes() const = 0;              ///< of the KV blocks
  virtual int64_t state_bytes() const { return 0; }  ///< of the states of recurrent layers
  /// Returns the adapters of this rank; nullptr: there is no memory for any.
  virtual layers::AdapterSlots* adapters() { return nullptr; }

 private:
  friend StepScope;
  virtual void begin_step(const StepRequirements&) {}
  virtual void finish_step() {}
  /// Leaves a step that an exception ended, also one that did not begin, so that a rank alone can begin the next one.
  virtual void abandon_step() noexcept {}
};

/// Arguments of the executor of one rank.
struct Shard {
  const checkpoint::Checkpoint* checkpoint = nullptr;
  const policy::Model* model = nullptr;
  const Plan* plan = nullptr;
  int64_t kv_blocks = 0;
  std::shared_ptr<comm::Communicator> communicator;  ///< communicator of all ranks of the plan
  std::function<void(int64_t)> progress;             ///< called with the bytes read so far
  at::Device device = at::kCPU;
  bool graphs = true;  ///< decode steps are captured in CUDA graphs where the device supports it
  layers::AdapterCapacity adapters = {};
};

/// Makes the executor of this rank under the strategy of the plan.
std::unique_ptr<Executor> make_executor(const Shard&);

/// Requires that the rank holds the weight bytes that the planner predicted, except for the alignment of tensors; other
/// numbers would make plans wrong. Throws std::logic_error.
void check_weights(const Shard&, int64_t planned, int64_t held);

/// Makes the executor of tensor and pipeline parallelism: it runs the layers of its stage, sharded by heads, FFN
/// columns and vocabulary rows.
std::unique_ptr<Executor> tensor_pipeline(const Shard&);
/// Makes the Sharded (FSDP / ZeRO-3 style) or Offload executor: a data-parallel rank of its own that all-gathers the
/// weights of a layer before it runs, from the shards of all ranks or from the checkpoint files.
std::unique_ptr<Executor> fully_sharded(const Shard&);

}  // namespace pm::parallel
